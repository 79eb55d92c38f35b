"""Random histories of share groups in virtual time: members come and go while nodes freeze, die and lose answers.

The checker: every record is delivered; one whose acknowledgement was confirmed is not delivered again; in the end each record
was accepted or rejected, or has been delivered as often as the group allows. `--seed N` repeats a history, `--soak N` runs N
times as many.
"""

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.client.errors import IllegalState, KafkaError
from ottla.client.share.consumer import ShareConsumerCore
from ottla.client.share.delivery import AcknowledgeType, Home, Run
from ottla.client.share.session import NodeShareSession
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import COORDINATOR_LOAD_IN_PROGRESS
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.schema import Request
from ottla.tasks.scheduler import Cancelled

from .test_producer_histories import Faults
from .whole_cluster import WholeCluster
from .world import World

ROUNDS = 5
PARTS = [TopicPartition("shared", index) for index in range(2)]
MOST_DELIVERIES = 10
KINDS: dict[type[Request], tuple[int, ...]] = {
    ShareFetchRequest: (),
    ShareAcknowledgeRequest: (),
    ShareGroupHeartbeatRequest: (COORDINATOR_LOAD_IN_PROGRESS,),
    MetadataRequest: (),
    FindCoordinatorRequest: (),
}
Place = tuple[TopicPartition, int]


class Worker:
    """A member that works on records and says of each what became of it."""

    def __init__(self, history: "History", name: str) -> None:
        self.history = history
        self.core = history.cluster.core(
            group_id="s", client_id=name, share_acknowledgement_mode="explicit", request_timeout_ms=5000
        )
        self.consumer = ShareConsumerCore(self.core)
        self.consumer.callback = self._answered
        self.kinds: dict[Place, AcknowledgeType] = {}
        self.consumer.subscribe(["shared"])
        self.task = self.core.scheduler.background(self._work(), name)

    def _answered(self, offsets: Mapping[TopicPartition, set[int]], error: KafkaError | None) -> None:
        for partition, partition_offsets in offsets.items():
            for offset in partition_offsets:
                kind = self.kinds.pop((partition, offset))
                if error is None and kind is not AcknowledgeType.RELEASE:
                    self.history.confirmed.add((partition, offset))

    async def _work(self) -> None:
        history, dice = self.history, self.history.dice
        try:
            while True:
                for record in await self.consumer.poll(dice.choice([0, 200, 2000])):
                    place = (TopicPartition(record.topic, record.partition), record.offset)
                    history.was_delivered(place)
                    kind = AcknowledgeType.ACCEPT
                    if dice.random() < history.unwillingness:
                        kind = dice.choice([AcknowledgeType.RELEASE, AcknowledgeType.REJECT])
                    self.kinds[place] = kind
                    self.consumer.acknowledge(record, kind)
                await self.core.scheduler.sleep(dice.choice([0, 10, 400]))
                if dice.random() < 0.3:
                    await self._commit()
        except Cancelled:
            raise
        except BaseException as error:
            history.errors.append(error)
            raise

    async def _commit(self) -> None:
        try:
            await self.consumer.commit(3000)
        except IllegalState:
            raise
        except KafkaError:
            return

    def close(self) -> None:
        self.task.cancel()
        self.core.scheduler.background(self.consumer.close(10_000), "close")

    def die(self) -> None:
        """Its process is killed."""
        self.task.cancel()
        membership: Any = self.consumer._member
        if membership._task is not None:
            membership._task.cancel()
        self.core.close()


class History:
    """Workers of a share group.

    deliveries  how often each record was handed to an application
    confirmed   records whose ACCEPT or REJECT was answered without an error
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World()
        self.cluster = WholeCluster(self.world, directory, group_share_delivery_count_limit=str(MOST_DELIVERIES))
        self.cluster.engine.create_topic("shared", len(PARTS))
        for topic in ("t", "u"):
            self.cluster.engine.create_topic(topic, 3)
        self.unwillingness = self.dice.choice([0.0, 0.2])
        self.errors: list[BaseException] = []
        self.workers: list[Worker] = []
        self.deliveries: Counter[Place] = Counter()
        self.confirmed: set[Place] = set()
        self.produced: set[Place] = set()
        self.count = 0
        self.faults = Faults(self.cluster, self.dice, KINDS)

    def was_delivered(self, place: Place) -> None:
        assert place not in self.confirmed, f"{place} was delivered after its acknowledgement was confirmed"
        assert place in self.produced
        self.deliveries[place] += 1

    def join(self) -> None:
        self.count += 1
        self.workers.append(Worker(self, f"w{self.count}"))

    def produce(self) -> None:
        partition = self.dice.choice(PARTS)
        end = sum(where == partition for where, _ in self.produced)
        count = self.dice.randint(1, 8)
        self.cluster.engine.append(partition, *(b"%d" % number for number in range(count)))
        self.produced |= {(partition, end + number) for number in range(count)}

    def run(self, steps: int) -> None:
        dice = self.dice
        self.faults.active = False
        self.join()
        self.advance(20_000)  # the group begins at the end of the log
        self.faults.active = True
        for _ in range(steps):
            verb = dice.choice(["produce", "produce", "produce", "fault", "fault", "join", "leave", "wait", "lead"])
            if verb == "produce":
                self.produce()
            elif verb == "fault":
                self.faults.step()
            elif verb == "lead":
                self._lead()
            elif verb == "join" and len(self.workers) < 3:
                self.join()
            elif verb == "leave" and len(self.workers) > 1:
                worker = self.workers.pop(dice.randrange(len(self.workers)))
                worker.close() if dice.random() < 0.7 else worker.die()
            self.advance(dice.choice([1, 50, 500, 5000]))
        self.faults.end()
        self.unwillingness = 0.0
        self.advance(180_000)  # locks and sessions of the dead end

    def _lead(self) -> None:
        """Another node leads the shared topic."""
        node = self.cluster.nodes[self.dice.randint(1, 3)]
        if not node.frozen and not node.refuses:
            self.cluster.lead("shared", 0, node.node)

    def advance(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)
        if self.errors:
            raise self.errors[0]

    def check(self) -> None:
        never = sorted(self.produced - self.deliveries.keys())
        assert not never, f"never delivered: {never}"
        open_still = [
            place
            for place in self.produced - self.confirmed
            if place in self._in_hands() and self.deliveries[place] < MOST_DELIVERIES
        ]
        assert not open_still, f"neither accepted nor rejected: {sorted(open_still)}"
        # What is not confirmed was acknowledged, and the answer was lost: it does not come again.
        before = Counter(self.deliveries)
        self.advance(60_000)
        assert self.deliveries == before, "records are delivered again although nothing is open"

    def _in_hands(self) -> set[Place]:
        """Acknowledgements that wait for an answer."""
        return {place for worker in self.workers for place in worker.kinds}


def test_every_delivery_is_accounted_for(tmp_path: Path, dice_seed: int, rounds: int, made: list[WholeCluster]) -> None:
    for number in range(rounds):
        print(f"--seed {dice_seed + number}")  # noqa: T201  (shown when the test fails)
        history = History(tmp_path / str(number), dice_seed + number)
        made.append(history.cluster)
        history.run(40)
        history.check()


def test_the_checker_finds_acknowledgements_that_were_confirmed_too_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[WholeCluster]
) -> None:
    say = NodeShareSession._report

    def say_fine(session: NodeShareSession, telling: dict[Home, list[Run]], error: KafkaError | None) -> None:
        del error
        say(session, telling, None)

    def run(seed: int) -> None:
        history = History(tmp_path / str(seed), seed)
        made.append(history.cluster)
        history.run(40)

    monkeypatch.setattr(NodeShareSession, "_report", say_fine)
    with pytest.raises(AssertionError, match="delivered after its acknowledgement was confirmed"):
        list(map(run, range(60)))
