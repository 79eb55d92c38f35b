"""Share groups in virtual time: what is delivered to whom, how often, and what becomes of sessions that break."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.coordination.coordinators import Coordination
from ottla.client.errors import KafkaError
from ottla.client.share.consumer import ShareConsumerCore
from ottla.client.share.delivery import AcknowledgeType, AcquiredBatch, DeliveredBatch, Home, Run
from ottla.client.topics import TopicPartition
from ottla.coordinators.groups.share import heartbeat
from ottla.coordinators.groups.share.heartbeat import InitializeShares
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.records.record import Record

from .whole_broker import WholeBroker
from .world import World

PART = TopicPartition("t", 0)
HOME = Home(1, 1, bytes(16), PART)
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
LOCK_MS = 15_000


class Sharer:
    """A member of the share group.

    results  results of acknowledgements: offsets, error
    """

    def __init__(self, world: World, mode: str = "explicit", **configs: Any) -> None:
        self.world = world
        self.core = world.core(group_id="g", share_acknowledgement_mode=mode, **configs)
        self.consumer = ShareConsumerCore(self.core)
        self.results: list[tuple[list[int], KafkaError | None]] = []
        self.consumer.callback = self._hear
        self.consumer.subscribe(["t"])

    def _hear(self, offsets: Any, error: KafkaError | None) -> None:
        self.results.append(
            (sorted(offset for partition_offsets in offsets.values() for offset in partition_offsets), error)
        )

    def poll(self, timeout_ms: int = 2000) -> list[Record]:
        return self.world.run(self.core, self.consumer.poll(timeout_ms))

    def commit(self) -> dict[Any, KafkaError | None]:
        return dict(self.world.run(self.core, self.consumer.commit(5000)))

    def say(self, records: list[Record], kind: AcknowledgeType) -> None:
        for record in records:
            self.consumer.acknowledge(record, kind)

    def close(self) -> None:
        self.world.run(self.core, self.consumer.close(5000))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def broker(world: World, tmp_path: Path) -> Iterator[WholeBroker]:
    made = WholeBroker(
        world,
        tmp_path,
        group_share_record_lock_duration_ms=str(LOCK_MS),
        group_share_min_record_lock_duration_ms="1000",
        group_share_delivery_count_limit="3",
    )
    made.create_topic("t", 1)
    yield made
    made.close()


def join(world: World, **configs: Any) -> Sharer:
    """A member that is in the group, and reads from here on."""
    sharer = Sharer(world, **configs)
    assert sharer.poll(8000) == []
    return sharer


def write(broker: WholeBroker, count: int) -> None:
    broker.append(PART, *(b"%d" % number for number in range(count)))


def seen(records: list[Record]) -> list[tuple[int, int]]:
    """(offset, how often it was delivered)"""
    return [(record.offset, record.delivery_count) for record in records]


def test_a_member_without_partitions_sends_its_next_heartbeat_early(
    world: World, broker: WholeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first heartbeat of a group gets no partitions, and Apache Kafka's response names the configured interval, 5 s."""
    at_once = Coordination._initialize_shares

    async def initialize(coordination: Coordination, message: InitializeShares) -> None:
        await coordination.tasks.sleep(200)
        await at_once(coordination, message)

    monkeypatch.setattr(Coordination, "_initialize_shares", initialize)
    monkeypatch.setattr(heartbeat, "interval_ms", lambda configured_ms, _wait_ms: configured_ms)
    sharer = Sharer(world)
    assert sharer.poll(1_000) == []
    write(broker, 1)
    assert seen(sharer.poll(1_000)) == [(0, 1)]
    sharer.consumer.subscribe(["missing"])
    world.advance(60_000)
    before = broker.asked[ShareGroupHeartbeatRequest]
    world.advance(60_000)
    assert 11 <= broker.asked[ShareGroupHeartbeatRequest] - before <= 13


def test_accepted_records_are_done_and_released_ones_are_delivered_again(world: World, broker: WholeBroker) -> None:
    sharer = join(world)
    write(broker, 4)
    records = sharer.poll()
    assert seen(records) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    sharer.say(records[:2], ACCEPT)
    sharer.say(records[2:3], RELEASE)
    sharer.say(records[3:], REJECT)
    assert set(sharer.commit().values()) == {None}
    again = sharer.poll()
    assert seen(again) == [(2, 2)]
    sharer.say(again, RELEASE)
    last = sharer.poll()
    assert seen(last) == [(2, 3)]
    sharer.say(last, RELEASE)
    assert sharer.poll() == []  # it was delivered as often as may be
    assert all(error is None for _, error in sharer.results)


def test_a_poll_accepts_what_the_one_before_returned(world: World, broker: WholeBroker) -> None:
    sharer = join(world, mode="implicit")
    write(broker, 2)
    assert seen(sharer.poll()) == [(0, 1), (1, 1)]
    assert sharer.poll() == []
    world.advance(LOCK_MS * 2)
    assert sharer.poll() == []


def test_expired_locks_let_other_members_get_the_records(world: World, broker: WholeBroker) -> None:
    slow = join(world)
    write(broker, 2)
    records = slow.poll()
    assert len(records) == 2
    other = Sharer(world)
    assert other.poll(LOCK_MS - 5000) == []
    assert seen(other.poll(LOCK_MS)) == [(0, 2), (1, 2)]
    slow.say(records, ACCEPT)
    [error] = slow.commit().values()
    assert error is not None  # it was too late
    assert slow.results[-1][1] is not None


def test_renewed_locks_do_not_expire(world: World, broker: WholeBroker) -> None:
    slow = join(world)
    write(broker, 1)
    records = slow.poll()
    other = Sharer(world)
    for _ in range(4):
        world.advance(LOCK_MS // 2)
        slow.say(records, RENEW)
        assert set(slow.commit().values()) == {None}
        assert other.poll(100) == []
    slow.say(records, ACCEPT)
    assert set(slow.commit().values()) == {None}
    assert other.poll(LOCK_MS * 2) == []


def test_close_releases_unacknowledged_records(world: World, broker: WholeBroker) -> None:
    first = join(world)
    write(broker, 3)
    records = first.poll()
    first.say(records[:1], ACCEPT)
    first.close()
    assert [offset for offset, _ in seen(Sharer(world).poll(8000))] == [1, 2]


def test_a_broken_session_is_opened_again(world: World, broker: WholeBroker) -> None:
    sharer = join(world)
    write(broker, 2)
    records = sharer.poll()
    broker.lose_all()
    world.advance(50)
    sharer.say(records, ACCEPT)
    [error] = sharer.commit().values()
    assert error is not None  # the records went back with their session
    assert sharer.results == [([0, 1], error)]
    assert [offset for offset, _ in seen(sharer.poll(LOCK_MS * 2))] == [0, 1]
    epochs = [request.share_session_epoch for request in broker.sent(ShareFetchRequest)]
    assert epochs.count(0) == 2


def test_every_record_is_done_with_whatever_breaks(
    world: World, broker: WholeBroker, dice_seed: int, request: pytest.FixtureRequest
) -> None:
    """Two members, of which now and then one is slow, one leaves, a connection breaks: nothing is lost, nothing hangs."""
    dice = random.Random(dice_seed)
    members = [join(world), join(world)]
    written = 0
    done: set[int] = set()
    failed: set[int] = set()
    for _ in range(30 * int(request.config.getoption("--soak"))):
        verb = dice.choice(["write", "poll", "poll", "poll", "break", "slow", "leave"])
        sharer = dice.choice(members)
        if verb == "write":
            write(broker, 3)
            written += 3
        elif verb == "break":
            broker.lose_all()
        elif verb == "slow":
            world.advance(dice.choice([100, LOCK_MS, LOCK_MS * 2]))
        elif verb == "leave":
            members.remove(sharer)
            sharer.close()
            sharer = Sharer(world)
            members.append(sharer)
        _work(sharer, dice, done, failed)
    for _ in range(40):
        world.advance(LOCK_MS)
        for sharer in members:
            _work(sharer, dice, done, failed)
    # A record that was delivered three times without an answer is given up; all others were accepted.
    assert done | failed >= set(range(written))


def _work(sharer: Sharer, dice: random.Random, done: set[int], failed: set[int]) -> None:
    records = sharer.poll(500)
    sharer.say(records, ACCEPT)
    failed.update(record.offset for record in records if record.delivery_count == 3)
    if dice.random() < 0.8:
        outcome = list(sharer.commit().values())
        if outcome == [None]:
            done.update(record.offset for record in records)
    else:
        done.update(record.offset for record in records)  # the next poll tells


# Deliveries by themselves.


def records(*offsets: int) -> list[Record]:
    return [Record(offset, 0, None, b"") for offset in offsets]


def test_acknowledgements_are_collected_as_runs_with_gaps() -> None:
    acquired = AcquiredBatch(HOME, [(10, 19), (30, 31)], records(10, 11, 12, 14, 15, 30, 31))
    taken, delivered = acquired.take(5)
    assert [record.offset for record in taken] == [10, 11, 12, 14, 15]
    delivered.acknowledge(12, REJECT)
    assert delivered.collect() == [Run(12, 12, REJECT), Run(13, 13, 0)]
    assert delivered.offsets == {10, 11, 14, 15}
    delivered.acknowledge_all(ACCEPT)
    assert delivered.collect() == [Run(10, 11, ACCEPT), Run(14, 15, ACCEPT)]
    assert delivered.settled
    rest, last = acquired.take(100)
    assert [record.offset for record in rest] == [30, 31]
    last.acknowledge_all(RELEASE)
    assert last.collect() == [Run(16, 19, 0), Run(30, 31, RELEASE)]
    assert len(acquired) == 0


def test_a_renewed_record_stays_in_hand() -> None:
    delivered = DeliveredBatch(HOME, [(5, 6)], [5, 6])
    delivered.acknowledge(5, RENEW)
    delivered.acknowledge(6, ACCEPT)
    assert delivered.collect() == [Run(5, 5, RENEW), Run(6, 6, ACCEPT)]
    assert delivered.offsets == {5}
    assert not delivered.acknowledge(6, REJECT)
    assert delivered.acknowledge(5, ACCEPT)
    assert delivered.collect() == [Run(5, 5, ACCEPT)]


def test_a_batch_without_acknowledgements_collects_nothing() -> None:
    delivered = DeliveredBatch(HOME, [(5, 7)], [5, 7])
    assert delivered.collect() == []
    assert not delivered.acknowledge(6, ACCEPT)
