"""Groups in virtual time: whatever members do, every partition is read by one of them, and by one at a time.

Members join, leave, die and come back, coordinators move, connections break; members go on polling all the while. `--soak N`
throws the dice N times as often.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.rebalance import Handover, Listeners
from ottla.client.errors import FencedError, KafkaError
from ottla.client.topics import TopicPartition
from ottla.protocol.connection import Envelope
from ottla.protocol.errors import FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.schema import Request
from ottla.tasks.scheduler import Cancelled

from .whole_broker import WholeBroker
from .world import LOST, World, kill

PARTITIONS = 5
PLACES = [TopicPartition("t", index) for index in range(PARTITIONS)]
ROUNDS = 3
PROTOCOLS = {
    "range": {"partition_assignment_strategy": "range"},
    "sticky": {"partition_assignment_strategy": "sticky"},
    "cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


class Reader:
    """A member with an application that polls, works, commits, and notes what it owns."""

    def __init__(self, crowd: "Crowd", name: str, instance: str | None) -> None:
        self.name, self.instance = name, instance
        self.crowd = crowd
        more = {} if instance is None else {"group_instance_id": instance}
        self.core = crowd.world.core(
            group_id="g",
            auto_offset_reset="earliest",
            client_id=name,
            enable_auto_commit="false",
            **crowd.protocol,
            **more,
        )
        self.consumer = ConsumerCore(self.core)
        listeners = Listeners(
            lambda parts: self.got(parts), lambda parts: self.gave(parts), lambda parts: self.gave(parts)
        )
        self.consumer.subscribe(["t"], None, listeners)
        self.task = self.core.scheduler.background(self._work(), name)

    def got(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            owner = self.crowd.owners.setdefault(partition, self)
            assert owner is self, f"{partition} is given to {self.name} while {owner.name} has it"

    def gave(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            if self.crowd.owners.get(partition) is self:
                del self.crowd.owners[partition]

    async def _work(self) -> None:
        dice = self.crowd.dice
        try:
            while True:
                records = self.consumer.take_many(3)
                if records:
                    self.crowd.read.update(
                        (TopicPartition(record.topic, record.partition), record.offset) for record in records
                    )
                    await self.core.scheduler.sleep(dice.choice([0, 5, 50]))
                    if dice.random() < 0.3:
                        await self._commit()
                    continue
                heard = await self.consumer.wait(1000)
                if isinstance(heard, Handover):
                    heard.listener(heard.partitions)
                    heard.done.complete(None)
        except Cancelled:
            raise
        except BaseException as error:
            self.crowd.failure.append(error)
            raise

    async def _commit(self) -> None:
        try:
            await self.consumer.commit(None, 5000)
        except KafkaError as error:
            # In a rebalance the generation may be another one before the member knows; it is never taken for a stranger.
            if isinstance(error, FencedError) or error.code in (FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID):
                self.crowd.failure.append(error)

    def die(self) -> None:
        """Kill the process: it does not leave the group."""
        self.task.cancel()
        kill(self.core, self.consumer)
        self.gave(PLACES)

    def leave(self) -> None:
        """It is closed well."""
        self.task.cancel()
        self.gave(PLACES)  # whoever closes has stopped reading
        self.core.scheduler.background(self.consumer.close(10_000), "close")


class Crowd:
    """Up to five members of a group."""

    def __init__(self, directory: Path, protocol: dict[str, str], seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World()
        self.broker = WholeBroker(self.world, directory)
        self.broker.create_topic("t", PARTITIONS)
        self.protocol: dict[str, Any] = protocol
        self.owners: dict[TopicPartition, Reader] = {}
        self.members: list[Reader] = []
        self.failure: list[BaseException] = []
        self.count = 0
        self.written = 0
        self.read: set[tuple[TopicPartition, int]] = set()

    def join(self, instance: str | None = None) -> None:
        self.count += 1
        self.members.append(Reader(self, f"m{self.count}", instance))

    def produce(self) -> None:
        """A record for each partition."""
        for place in PLACES:
            self.broker.append(place, b"%d" % self.written)
        self.written += 1

    def step(self) -> None:
        dice, members = self.dice, self.members
        verb = dice.choice(["join", "join", "leave", "die", "move", "lose", "wait", "wait", "restart"])
        if verb == "join" and len(members) < 5:
            self.join(f"i{self.count}" if dice.random() < 0.4 else None)
        elif verb in ("leave", "die") and len(members) > 1:
            gone = members.pop(dice.randrange(len(members)))
            gone.leave() if verb == "leave" else gone.die()
        elif verb == "restart":
            static = [member for member in members if member.instance is not None]
            if static and not ("group_protocol" in self.protocol and self.broker.is_troubled):
                gone = dice.choice(static)
                members.remove(gone)
                if "group_protocol" in self.protocol:
                    gone.leave()  # who was killed comes back when its session is over (UNRELEASED_INSTANCE_ID)
                else:
                    gone.die()
                self.world.advance(dice.choice([10, 2000]))
                self.join(gone.instance)
        elif verb == "move":
            self.broker.move_coordinators()
        elif verb == "lose":
            self.broker.losses = dice.choice([1, 3])
        elif verb == "wait":
            self.produce()
        self.advance(dice.choice([1, 20, 300, 4000]))

    def advance(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)
        if self.failure:
            raise self.failure[0]

    def settle(self) -> None:
        """In the end every partition has one owner, and the owners are alive."""
        for _ in range(40):
            self.advance(3000)
            if self.settled():
                break
        self.advance(3000)
        assert self.settled(), {str(part): owner.name for part, owner in self.owners.items()}
        assert self.read == {(place, offset) for place in PLACES for offset in range(self.written)}

    def settled(self) -> bool:
        owned = sorted(part for member in self.members for part in member.consumer.assignment)
        agreed = all(self.owners.get(part) is member for member in self.members for part in member.consumer.assignment)
        return owned == PLACES and agreed


@pytest.fixture
def crowds() -> Iterator[list[Crowd]]:
    made: list[Crowd] = []
    yield made
    for crowd in made:
        crowd.broker.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_partition_has_one_reader_at_a_time(
    crowds: list[Crowd], tmp_path: Path, dice_seed: int, rounds: int, protocol: str
) -> None:
    for number in range(rounds):
        print(f"--seed {dice_seed + number}")  # noqa: T201  (shown when the test fails)
        crowd = Crowd(tmp_path / str(number), PROTOCOLS[protocol], dice_seed + number)
        crowds.append(crowd)
        crowd.join()
        for _ in range(25):
            crowd.step()
        crowd.settle()


@pytest.mark.parametrize("kind", [SyncGroupRequest, MetadataRequest, JoinGroupRequest])
def test_a_group_goes_on_when_its_leader_was_interrupted(
    crowds: list[Crowd], tmp_path: Path, kind: type[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All members waited for the assignment of the leader, whose connection had broken before it was sent."""
    crowd = Crowd(tmp_path, PROTOCOLS["range"], 1)
    crowds.append(crowd)
    crowd.join()
    crowd.join()
    answer, left = crowd.broker.answer, [kind]

    def break_once(envelope: Envelope) -> Any:
        if left and envelope.api.request_class() is left[0]:
            left.clear()
            return LOST
        return answer(envelope)

    monkeypatch.setattr(crowd.broker, "answer", break_once)
    crowd.settle()
    assert crowd.world.now < 20_000


@pytest.mark.parametrize("protocol", ["sticky", "cooperative-sticky"])
def test_members_keep_what_they_had_when_another_joins(crowds: list[Crowd], tmp_path: Path, protocol: str) -> None:
    """Sticky members give up everything before they join; what they had is in what they tell the leader (KIP-54)."""
    crowd = Crowd(tmp_path, PROTOCOLS[protocol], 1)
    crowds.append(crowd)
    crowd.join()
    crowd.join()
    crowd.settle()
    before = [(member, set(member.consumer.assignment)) for member in crowd.members]
    crowd.join()
    crowd.settle()
    for member, had in before:
        assert set(member.consumer.assignment) <= had
    assert sorted(len(member.consumer.assignment) for member in crowd.members) == [1, 2, 2]
