"""The consumer: positions, groups of both protocols, commits, transactions, whole batches."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla import Admin, Consumer, KafkaError, NewTopic, OffsetAndMetadata, Producer, Record, TopicPartition, aio
from ottla.client.errors import IllegalState, InvalidClientConfig, NoOffset, OffsetOutOfRange, UnknownTopic
from tests.conformance.members import wait_for

from .conftest import Produce, fresh

CLASSIC = ("range", "roundrobin", "sticky", "cooperative-sticky")
GROUPS = [{"group_protocol": "consumer"}, *({"partition_assignment_strategy": name} for name in CLASSIC)]
IDS = ["consumer", *CLASSIC]
QUICK = {"heartbeat_interval_ms": 100, "auto_offset_reset": "earliest"}
Make = Callable[..., Consumer]


@pytest.fixture
def make(bootstrap_servers: str, request: pytest.FixtureRequest) -> Any:
    """Makes consumers, which are closed at the end."""
    made = []

    def consumer(**options: Any) -> Consumer:
        if options.get("group_protocol") == "consumer" and request.config.getoption("--kafka-version").startswith("3"):
            pytest.skip("Apache Kafka 3.9 has the new protocol as a preview only")
        made.append(Consumer(bootstrap_servers=bootstrap_servers, **(QUICK | options)))
        return made[-1]

    yield consumer
    for client in reversed(made):
        client.close()


def parts(topic: str, count: int = 2) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(count)]


def take(consumer: Consumer, count: int) -> list[Record]:
    records: list[Record] = []
    while len(records) < count:
        more = consumer.consume(count - len(records), timeout=20)
        assert more, records
        records += more
    return records


def settle(consumers: list[Consumer], owned: Callable[[list[list[TopicPartition]]], bool]) -> list[Record]:
    """Poll all of them until they own what they should; what they read meanwhile."""
    records = []
    deadline = time.monotonic() + 30
    while not owned([consumer.assignment() for consumer in consumers]):
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            records += consumer.consume(timeout=0.05)
    return records


def test_manually_assigned_partitions_are_read(make: Make, topic: str, produce: Produce) -> None:
    produce(topic, 5)
    produce(topic, 3, 1)
    consumer = make()
    with pytest.raises(IllegalState, match="poll comes after subscribe or assign"):
        consumer.poll(0)
    consumer.assign(parts(topic))
    records = take(consumer, 8)
    places = sorted((record.partition, record.offset, record.key, record.value) for record in records)
    assert places == [(0, i, b"k%d" % i, b"v%d" % i) for i in range(5)] + [
        (1, i, b"k%d" % i, b"v%d" % i) for i in range(3)
    ]
    assert {(record.topic, record.timestamp_type, record.leader_epoch) for record in records} == {(topic, 0, 0)}
    assert [consumer.position(part) for part in parts(topic)] == [5, 3]
    assert [consumer.lag(part) for part in parts(topic)] == [0, 0]
    assert consumer.poll(0.1) is None
    consumer.assign(parts(topic, 1))
    assert consumer.assignment() == parts(topic, 1)
    produce(topic, 1, 1)
    produce(topic, 1)
    assert [(record.partition, record.offset) for record in take(consumer, 1)] == [(0, 5)]


def test_positions_move(make: Make, topic: str, produce: Produce) -> None:
    produce(topic, 10)
    (partition,) = parts(topic, 1)
    consumer = make(auto_offset_reset="latest")
    consumer.assign([partition])
    assert consumer.position(partition) == 10
    consumer.seek(partition, 4)
    assert [record.offset for record in take(consumer, 3)] == [4, 5, 6]
    consumer.seek(partition, 2)
    assert [record.offset for record in take(consumer, 1)] == [2]
    consumer.seek_to_beginning()
    assert consumer.position(partition) == 0
    assert [record.offset for record in take(consumer, 2)] == [0, 1]
    consumer.pause([partition])
    assert consumer.paused() == [partition]
    assert consumer.poll(0.2) is None
    consumer.resume([partition])
    assert [record.offset for record in take(consumer, 1)] == [2]
    consumer.seek_to_end([partition])
    assert consumer.position(partition) == 10
    with pytest.raises(IllegalState, match="is not assigned"):
        consumer.seek(TopicPartition(topic, 1), 0)


def test_seek_to_committed_offsets(make: Make, topic: str, produce: Produce) -> None:
    produce(topic, 5)
    produce(topic, 5, 1)
    first, second = parts(topic)
    consumer = make(group_id=fresh("g"), enable_auto_commit=False)
    consumer.assign([first, second])
    take(consumer, 10)
    assert (consumer.high_watermark(first), consumer.lag(first)) == (5, 0)
    consumer.commit({first: 3})
    consumer.seek_to_committed()
    assert (consumer.position(first), consumer.position(second)) == (3, 0)
    assert sorted((record.partition, record.offset) for record in take(consumer, 7)) == [
        (0, 3),
        (0, 4),
        *((1, offset) for offset in range(5)),
    ]
    consumer.seek_to_committed([first])
    assert (consumer.position(first), consumer.position(second)) == (3, 5)


def test_seek_to_committed_needs_a_group(make: Make, topic: str) -> None:
    consumer = make()
    consumer.assign(parts(topic))
    assert consumer.high_watermark(TopicPartition(topic, 0)) is None
    with pytest.raises(IllegalState, match="group"):
        consumer.seek_to_committed()


@pytest.mark.parametrize("group", GROUPS, ids=IDS)
def test_a_rebalance_that_is_enforced_keeps_the_group_working(
    make: Make, topic: str, produce: Produce, group: dict[str, str]
) -> None:
    consumer = make(group_id=fresh("g"), **group)
    with pytest.raises(IllegalState, match="comes after subscribe"):
        consumer.enforce_rebalance()
    consumer.subscribe([topic])
    settle([consumer], lambda owned: len(owned[0]) == 2)
    before = consumer.consumer_group_metadata().generation
    consumer.enforce_rebalance()
    if group.get("group_protocol") != "consumer":
        wait_for(
            lambda: consumer.consume(timeout=0.05) == [] and consumer.consumer_group_metadata().generation > before
        )
    produce(topic, 1)
    assert [record.offset for record in take(consumer, 1)] == [0]


def test_offsets_by_time(make: Make, topic: str, bootstrap_servers: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        now = time.time_ns() // 1_000_000
        for number in range(5):
            producer.produce(topic, str(number), partition=0, timestamp=now - 5000 + 1000 * number)
    first, second = parts(topic)
    consumer = make()
    offsets = consumer.offsets_for_times({first: now - 3500, second: now - 3500})
    assert (offsets[first].offset, offsets[first].timestamp, offsets[second].offset) == (2, now - 3000, -1)
    assert consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
    assert consumer.end_offsets([first, second]) == {first: 5, second: 0}
    late = make(auto_offset_reset="by_duration:PT2.5S")
    late.assign([first])
    assert late.position(first) in (3, 4)


def test_auto_offset_reset(make: Make, topic: str, produce: Produce, admin: Admin) -> None:
    produce(topic, 10)
    (partition,) = parts(topic, 1)
    nothing = make(group_id=fresh("g"), auto_offset_reset="none")
    nothing.assign([partition])
    with pytest.raises(NoOffset, match=r"has committed no offset of .* and auto\.offset\.reset is none"):
        nothing.poll(10)
    nothing.seek(partition, 99)
    with pytest.raises(OffsetOutOfRange):
        nothing.poll(10)
    earliest = make()
    earliest.assign([partition])
    earliest.seek(partition, 99)
    assert take(earliest, 1)[0].offset == 0


@pytest.mark.parametrize("group", GROUPS, ids=IDS)
def test_members_share_partitions_and_take_over_those_of_closed_ones(
    make: Make, admin: Admin, produce: Produce, group: dict[str, str]
) -> None:
    topic, group_id = fresh(), fresh("g")
    admin.create_topics([NewTopic(topic, 4, 1)]).check()
    for index in range(4):
        produce(topic, 50, index)
    events: list[tuple[str, list[TopicPartition]]] = []
    first = make(group_id=group_id, **group)
    first.subscribe(
        [topic],
        on_assign=lambda partitions: events.append(("+", partitions)),
        on_revoke=lambda partitions: events.append(("-", partitions)),
    )
    seen = [(record.partition, record.offset) for record in take(first, 200)]
    assert events == [("+", parts(topic, 4))]
    second = make(group_id=group_id, **group)
    second.subscribe([topic])

    def halved(owned: list[list[TopicPartition]]) -> bool:
        return sorted(map(len, owned)) == [2, 2] and sorted(owned[0] + owned[1]) == parts(topic, 4)

    assert settle([first, second], halved) == []
    kept = first.assignment()
    if group.get("group_protocol") == "consumer" or "cooperative-sticky" in group.values():
        revoked = [partition for kind, partitions in events if kind == "-" for partition in partitions]
        assert sorted(revoked) == sorted(set(parts(topic, 4)) - set(kept))
    for index in range(4):
        produce(topic, 5, index)
    deadline = time.monotonic() + 20
    while len(seen) < 220:
        assert time.monotonic() < deadline
        for consumer in (first, second):
            seen += [(record.partition, record.offset) for record in consumer.consume(timeout=0.1)]
    assert sorted(seen) == [(index, offset) for index in range(4) for offset in range(55)]
    second.close()
    assert settle([first], lambda owned: owned[0] == parts(topic, 4)) == []
    first.close()
    # What was read was committed on the way out.
    after = make(group_id=group_id, **group)
    assert {part: committed.offset for part, committed in after.committed(parts(topic, 4)).items()} == dict.fromkeys(
        parts(topic, 4), 55
    )


@pytest.mark.parametrize("group", GROUPS[:2], ids=IDS[:2])
def test_a_pattern(make: Make, admin: Admin, produce: Produce, group: dict[str, str]) -> None:
    mark = fresh("p")
    names = [f"{mark}-a", f"{mark}-b"]
    admin.create_topics([NewTopic(name, 1, 1) for name in names]).check()
    for name in names:
        produce(name, 2)
    consumer = make(group_id=fresh("g"), **group)
    consumer.subscribe(pattern=f"{mark}-.")
    assert sorted((record.topic, record.offset) for record in take(consumer, 4)) == [
        (n, i) for n in names for i in range(2)
    ]


@pytest.mark.parametrize("group", GROUPS[:2], ids=IDS[:2])
def test_a_subscribed_topic_is_created(make: Make, admin: Admin, produce: Produce, group: dict[str, str]) -> None:
    created, missing = fresh("t"), fresh("t")
    consumer = make(group_id=fresh("g"), auto_offset_reset="earliest", **group)
    consumer.subscribe([created])
    other = make(group_id=fresh("g"), allow_auto_create_topics=False, **group)
    other.subscribe([missing])
    while created not in admin.list_topics():
        consumer.consume(timeout=0.1)
        other.consume(timeout=0.1)
    assert missing not in admin.list_topics()
    produce(created, 1)
    assert [record.topic for record in take(consumer, 1)] == [created]


@pytest.mark.parametrize("group", GROUPS[:2], ids=IDS[:2])
def test_a_static_member_comes_back(make: Make, topic: str, produce: Produce, group: dict[str, str]) -> None:
    group_id = fresh("g")
    static = make(group_id=group_id, group_instance_id="one", **group)
    other = make(group_id=group_id, group_instance_id="two", **group)
    for consumer in (static, other):
        consumer.subscribe([topic])
    settle([static, other], lambda owned: list(map(len, owned)) == [1, 1])
    (mine,) = static.assignment()
    static.close()
    produce(topic, 3, mine.partition)
    assert other.consume(timeout=0.5) == []  # it is waited for
    again = make(group_id=group_id, group_instance_id="one", **group)
    again.subscribe([topic])
    assert {(record.partition, record.offset) for record in take(again, 3)} == {(mine.partition, i) for i in range(3)}


def test_commits(make: Make, topic: str, produce: Produce) -> None:
    produce(topic, 10)
    first, second = parts(topic)
    group_id = fresh("g")
    consumer = make(group_id=group_id, enable_auto_commit=False)
    consumer.assign([first, second])
    take(consumer, 4)
    assert consumer.committed([first, second]) == {}
    assert consumer.commit()[first].offset == 4
    commits: list[tuple[KafkaError | None, dict[TopicPartition, OffsetAndMetadata]]] = []
    arrived = threading.Event()

    def report(error: KafkaError | None, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        commits.append((error, offsets))
        arrived.set()

    consumer.commit_async({second: OffsetAndMetadata(7, "note")}, report)
    assert arrived.wait(20)
    assert commits == [(None, {second: OffsetAndMetadata(7, "note")})]
    committed = consumer.committed([first, second])
    assert (committed[first].offset, committed[second].offset, committed[second].metadata) == (4, 7, "note")
    consumer.close()
    after = make(group_id=group_id)
    after.assign([first])
    assert take(after, 1)[0].offset == 4


def test_automatic_commits(make: Make, topic: str, produce: Produce) -> None:
    produce(topic, 10)
    (partition,) = parts(topic, 1)
    consumer = make(group_id=fresh("g"), auto_commit_interval_ms=50)
    consumer.subscribe([topic])
    take(consumer, 6)
    deadline = time.monotonic() + 20
    while {part: committed.offset for part, committed in consumer.committed([partition]).items()} != {partition: 6}:
        assert time.monotonic() < deadline
        time.sleep(0.06)
        consumer.pause([partition])
        assert consumer.poll(0) is None


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_records_are_not_seen(make: Make, topic: str, bootstrap_servers: str, isolation: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=fresh("tx")) as producer:
        producer.init_transactions(30)
        for number in range(4):
            producer.begin_transaction()
            producer.produce(topic, str(number), partition=0)
            producer.flush(10)  # what was never sent is not even aborted
            (producer.commit_transaction if number % 2 else producer.abort_transaction)(30)
    consumer = make(isolation_level=isolation)
    consumer.assign(parts(topic, 1))
    expected = [b"1", b"3"] if isolation == "read_committed" else [b"0", b"1", b"2", b"3"]
    assert [record.value for record in take(consumer, len(expected))] == expected
    assert consumer.poll(0.2) is None
    assert consumer.position(TopicPartition(topic, 0)) == 8


def test_many_records_in_small_fetches(make: Make, topic: str, bootstrap_servers: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, compression_type="lz4") as producer:
        for number in range(5000):
            producer.produce(topic, b"%d" % number * 20, partition=0)
    consumer = make(max_partition_fetch_bytes=1000, fetch_max_bytes=2000)
    consumer.assign(parts(topic, 1))
    assert [record.offset for record in take(consumer, 5000)] == list(range(5000))


def test_whole_batches_and_tables(make: Make, topic: str, produce: Produce) -> None:
    produce(topic, 100)
    produce(topic, 50)
    (partition,) = parts(topic, 1)
    consumer = make()
    consumer.assign([partition])
    rows: list[dict[str, Any]] = []
    while len(rows) < 150:
        table = consumer.poll_arrow(20)
        assert table is not None
        rows += table.to_pylist()
    assert [row["offset"] for row in rows] == list(range(150))
    assert (rows[3]["key"], rows[3]["value"], rows[3]["topic"], rows[3]["partition"]) == (b"k3", b"v3", topic, 0)
    assert consumer.position(partition) == 150
    consumer.seek(partition, 120)
    again = consumer.poll_arrow(20, columns=["value", "offset"])
    assert again is not None
    assert again.column_names == ["value", "offset"]
    assert again["offset"].to_pylist() == list(range(120, 150))
    assert consumer.poll_arrow(0.1) is None


def test_iteration_and_asyncio(make: Make, topic: str, produce: Produce, bootstrap_servers: str) -> None:
    produce(topic, 5)
    consumer = make(group_id=fresh("g"))
    consumer.subscribe([topic])
    offsets = []
    for record in consumer:
        offsets.append(record.offset)
        if len(offsets) == 5:
            break
    assert offsets == list(range(5))
    assignments: list[list[TopicPartition]] = []

    async def listen(partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        assignments.append(partitions)

    async def read() -> list[int]:
        group = {"group_id": fresh("g"), "auto_offset_reset": "earliest"}
        async with aio.Consumer(bootstrap_servers=bootstrap_servers, **group) as reader:
            reader.subscribe([topic], on_assign=listen)
            read_offsets = []
            async for received in reader:
                read_offsets.append(received.offset)
                if len(read_offsets) == 5:
                    break
            assert (await reader.commit())[TopicPartition(topic, 0)].offset == 5
            return read_offsets

    assert asyncio.run(read()) == list(range(5))
    assert assignments == [parts(topic)]


@pytest.mark.parametrize("has_position", [True, False])
def test_an_assigned_topic_is_created(make: Make, admin: Admin, produce: Produce, has_position: bool) -> None:
    """As with Java's consumer; the first records are read then."""
    consumer, name = make(), fresh("t")
    consumer.assign(parts(name, 1))
    if has_position:
        consumer.seek(parts(name, 1)[0], 0)
    end = time.monotonic() + 30
    while name not in admin.list_topics() and time.monotonic() < end:
        assert consumer.poll(0.1) is None
    produce(name, 3)
    assert [record.offset for record in take(consumer, 3)] == [0, 1, 2]


def test_an_assigned_topic_that_must_not_be_created_is_unknown(make: Make, admin: Admin) -> None:
    consumer, name = make(allow_auto_create_topics=False), fresh("t")
    consumer.assign(parts(name, 1))
    with pytest.raises(UnknownTopic, match=f"topic {name} does not exist"):
        consumer.poll(20)
    assert name not in admin.list_topics()


def test_invalid_calls_raise(make: Make, topic: str, bootstrap_servers: str) -> None:
    consumer = make()
    with pytest.raises(IllegalState, match=r"subscribe: this needs the config group\.id"):
        consumer.subscribe([topic])
    with pytest.raises(IllegalState, match=r"commit: this needs the config group\.id"):
        consumer.commit()
    member = make(group_id=fresh("g"))
    member.subscribe([topic])
    with pytest.raises(IllegalState, match="subscribe was called before"):
        member.assign(parts(topic))
    with pytest.raises(InvalidClientConfig, match="odd is no assignor"):
        make(group_id="g", partition_assignment_strategy="odd").subscribe([topic])
    with pytest.raises(UnknownTopic):
        consumer.end_offsets([TopicPartition("no-such-topic", 0)])
    consumer.close()
    with pytest.raises(IllegalState, match="closed"):
        consumer.poll(0)
    with (
        Consumer(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=300) as nobody,
        pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"),
    ):
        nobody.end_offsets(parts(topic))


@pytest.mark.parametrize("group", GROUPS[:2], ids=IDS[:2])
def test_slow_processing_of_fetched_records_keeps_the_membership(
    make: Make, topic: str, produce: Produce, group: dict[str, str]
) -> None:
    """One fetch brings more than is worked off in max.poll.interval.ms; positions are committed meanwhile."""
    produce(topic, 200)
    lost: list[list[TopicPartition]] = []
    group_id, partition = fresh("g"), TopicPartition(topic, 0)
    consumer = make(group_id=group_id, max_poll_interval_ms=700, auto_commit_interval_ms=100, **group)
    consumer.subscribe([topic], on_revoke=lost.append)
    offsets = []
    for _ in range(20):
        record = consumer.poll(20)
        assert record is not None
        offsets.append(record.offset)
        time.sleep(0.08)
    assert offsets == list(range(20))
    assert lost == []
    assert consumer.committed([partition])[partition].offset > 5


@pytest.mark.parametrize("group", GROUPS[:2], ids=IDS[:2])
def test_a_consumer_that_does_not_poll_loses_its_partitions(
    make: Make, topic: str, produce: Produce, group: dict[str, str], bootstrap_servers: str
) -> None:
    produce(topic, 5)
    lost: list[list[TopicPartition]] = []
    silent = make(group_id=(group_id := fresh("g")), max_poll_interval_ms=500, **group)
    silent.subscribe([topic], on_lost=lost.append)
    take(silent, 5)
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        # The other one joins when this one has left: it would have to share with it.
        wait_for(lambda: not admin.describe_consumer_groups([group_id]).check()[group_id].members)
    other = make(group_id=group_id, **group)
    other.subscribe([topic])
    settle([other], lambda owned: owned[0] == parts(topic))
    deadline = time.monotonic() + 20
    while sorted(silent.assignment() + other.assignment()) != parts(topic) or not silent.assignment():
        assert time.monotonic() < deadline
        for consumer in (silent, other):
            consumer.poll(0.05)
    assert lost == [parts(topic)]
