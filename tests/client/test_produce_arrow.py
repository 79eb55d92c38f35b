"""Arrow tables into the producer: what a row becomes, where it goes, what is said of the table."""

import asyncio
import datetime
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition, aio
from ottla.client.errors import BufferExhausted, IllegalState, RecordTooLarge, UnknownTopic
from ottla.extras import install_command
from ottla.records.partitioner import partition_of

from .conftest import Read, fresh

pa = pytest.importorskip("pyarrow", reason="tables are Arrow tables (extra arrow)")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def producer(bootstrap_servers: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=bootstrap_servers) as client:
        yield client


def test_everything_of_a_row_arrives(producer: Producer, topic: str, read: Read) -> None:
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []]
    table = pa.table(
        {
            "value": pa.array(["text", None, ""]),
            "key": pa.array([b"k", b"", None], pa.binary()),
            "partition": pa.array([1, 1, 0], pa.int64()),
            "timestamp": pa.array([1234, 1235, 1236], pa.timestamp("ms")),
            "headers": pa.array(headers, HEADERS),
            "offset": pa.array([7, 8, 9]),
        }
    )
    future = producer.produce_arrow(table, topic)
    assert producer.flush(10) == 0
    delivered = future.result(1)
    assert delivered.records == 3
    assert delivered.offsets == {TopicPartition(topic, 0): (0, 0), TopicPartition(topic, 1): (0, 1)}
    first, second, third = read(topic, 3)
    assert (first.key, first.value, first.timestamp, first.headers) == (None, b"", 1236, [])
    assert (second.key, second.value, second.timestamp) == (b"k", b"text", 1234)
    assert second.headers == [("a", b"1"), ("a", None)]
    assert (third.key, third.value, third.headers) == (b"", None, [])


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_texts_and_bytes_of_any_kind(producer: Producer, topic: str, read: Read, kind: Any) -> None:
    texts = ["", None, "short", "longer than what a view holds in itself", "short"]
    column = pa.array(texts, pa.string()).cast(kind) if kind != pa.string_view() else pa.array(texts, kind)
    producer.produce_arrow(pa.table({"key": column, "value": column}).slice(1), topic, partition=0)
    producer.flush(10)
    expected = [None if text is None else text.encode() for text in texts[1:]]
    assert [(record.key, record.value) for record in read(topic, 4)] == [(value, value) for value in expected]


MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123000, datetime.UTC)


@pytest.mark.parametrize(
    "kind",
    [*(pa.timestamp(unit) for unit in ("ms", "us", "ns")), pa.timestamp("us", tz="Europe/Berlin"), pa.int64()],
    ids=str,
)
def test_times_of_any_unit(producer: Producer, topic: str, read: Read, kind: Any) -> None:
    ms = int(MOMENT.timestamp() * 1000)
    times = pa.array([ms, None], pa.int64()).cast(pa.timestamp("ms")).cast(kind)
    producer.produce_arrow(pa.table({"value": ["then", "now"], "timestamp": times}), topic, partition=0)
    producer.flush(10)
    then, now = read(topic, 2)
    assert then.timestamp == ms
    assert now.timestamp > ms


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.map_(pa.string(), pa.binary()),
    ],
    ids=str,
)
def test_headers_of_any_kind(producer: Producer, topic: str, read: Read, kind: Any) -> None:
    if pa.types.is_map(kind):
        headers = pa.array([[("zero", b"0")], [("h", b"x")], None], kind)
    else:
        rows = [[{"key": "zero", "value": "0"}], [{"key": "h", "value": "x"}], None]
        headers = pa.array(rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))).cast(kind)
    table = pa.table({"value": ["a", "b", "c"], "headers": headers}).slice(1)
    producer.produce_arrow(table, topic, partition=0)
    producer.flush(10)
    assert [record.headers for record in read(topic, 2)] == [[("h", b"x")], []]


def test_keys_decide_as_for_single_records(producer: Producer, topic: str, read: Read) -> None:
    keys = [None if number % 5 == 0 else f"key {number}" for number in range(400)]
    values = [str(number) for number in range(400)]
    producer.produce_arrow(pa.table({"key": keys, "value": values}), topic)
    producer.flush(10)
    for record in read(topic, 400):
        if record.key is not None:
            assert record.partition == partition_of(record.key, 2)


@pytest.mark.parametrize("name", ["murmur2", "consistent_random", "round_robin", "fnv1a"])
def test_every_partitioner_takes_rows_where_it_takes_records(
    bootstrap_servers: str, topic: str, read: Read, name: str
) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, partitioner=name) as producer:
        for number in range(50):
            producer.produce(topic, "single", key=str(number))
        producer.flush(10)
        producer.produce_arrow(pa.table({"key": [str(number) for number in range(50)], "value": ["row"] * 50}), topic)
    records = read(topic, 100)
    places = [
        {record.key: record.partition for record in records if record.value == kind} for kind in (b"single", b"row")
    ]
    assert places[0] == places[1]


def test_topics_of_a_column(producer: Producer, admin: Admin, topic: str, read: Read) -> None:
    other = fresh()
    admin.create_topics([NewTopic(other, 2, 1)]).check()
    for kind in (pa.string(), pa.dictionary(pa.int32(), pa.string())):
        names = pa.array([topic, other, topic, other, topic], pa.string()).cast(kind)
        batch = pa.record_batch({"topic": names, "value": list("abcde"), "partition": [0, 0, None, 1, 1]})
        producer.produce_arrow(batch, partition=0)
    delivered = producer.produce_arrow(
        pa.table({"topic": pa.array([other, other]), "value": ["x", "y"]}), topic, partition=1
    )
    producer.flush(10)
    assert list(delivered.result(1).offsets) == [TopicPartition(topic, 1)]
    assert [record.value for record in read(topic, 8)] == [b"a", b"c", b"a", b"c", b"e", b"e", b"x", b"y"]
    assert [(record.partition, record.value) for record in read(other, 4)] == [
        (0, b"b"),
        (0, b"b"),
        (1, b"d"),
        (1, b"d"),
    ]


def test_many_batches_keep_their_order(bootstrap_servers: str, topic: str, read: Read) -> None:
    """More than memory holds, and smaller batches than rows."""

    def batches() -> Iterator[Any]:
        for start in range(0, 6000, 1500):
            yield pa.record_batch({"value": [f"{number:05d}" for number in range(start, start + 1500)]})

    with Producer(bootstrap_servers=bootstrap_servers, buffer_memory=20_000, batch_size=2000) as producer:
        future = producer.produce_arrow(batches(), topic, partition=0)
        assert producer.flush(20) == 0
        assert future.result(1) == (6000, {TopicPartition(topic, 0): (0, 5999)})
    assert [int(record.value or b"") for record in read(topic, 6000)] == list(range(6000))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_objects_with_the_arrow_interface_are_accepted(
    bootstrap_servers: str, topic: str, read: Read, codec: str
) -> None:
    frame = pa.table({"value": [b"a", b"b"]}).to_pandas()
    with Producer(bootstrap_servers=bootstrap_servers, compression_type=codec) as producer:
        producer.produce_arrow(frame, topic, partition=0)
        producer.produce_arrow([pa.table({"value": [b"c"]}), pa.record_batch({"value": [b"d"]})], topic, partition=0)
        producer.produce_arrow(pa.table({"value": pa.nulls(1), "key": pa.nulls(1)}), topic, partition=0)
        empty = producer.produce_arrow(pa.table({"value": pa.array([], pa.string())}), topic)
        assert empty.result(1) == (0, {})
    assert [record.value for record in read(topic, 5)] == [b"a", b"b", b"c", b"d", None]


def test_a_table_is_read_as_it_was_produced(producer: Producer, topic: str, bootstrap_servers: str) -> None:
    table = pa.table({"key": pa.array([b"a", None, b"c"]), "value": pa.array([b"1", b"2", None])})
    producer.produce_arrow(table, topic, partition=0).result(10)
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        received = consumer.poll_arrow(10)
        assert received is not None
        assert received.select(["key", "value"]).equals(table)
        producer.produce_arrow(received, partition=1).result(10)  # its columns topic and partition say where


def test_invalid_tables_are_refused(producer: Producer, topic: str) -> None:
    wrong = {
        "the column value is missing; there are vaule": {"vaule": ["x"]},
        "column value is int64, it must be string or binary": {"value": [1]},
        "column headers is string, it must be list<struct<key: string, value: binary>>": {
            "value": ["x"],
            "headers": ["h"],
        },
        "column timestamp is string, it must be a timestamp": {"value": ["x"], "timestamp": ["now"]},
        "column partition is double, it must be a column of integers": {"value": ["x"], "partition": [0.5]},
        "column partition has the value -1: it must not be negative": {"value": ["x", "y"], "partition": [0, -1]},
        "column timestamp has the value -2: it must not be negative": {"value": ["x"], "timestamp": [-2]},
        "column headers has a header without a key": {
            "value": ["x"],
            "headers": pa.array([[{"key": None, "value": b"h"}]], HEADERS),
        },
    }
    for message, columns in wrong.items():
        with pytest.raises(ValueError, match=message):
            producer.produce_arrow(pa.table(columns), topic)
    with pytest.raises(ValueError, match="name a topic, or add a column topic"):
        producer.produce_arrow(pa.table({"value": ["x"]}))
    with pytest.raises(ValueError, match="a row has no topic"):
        producer.produce_arrow(pa.table({"value": ["x"], "topic": pa.nulls(1, pa.string())}))
    for data in ("text", 7, ["text"]):
        with pytest.raises(TypeError, match="is no Arrow table"):
            producer.produce_arrow(data, topic)
    with pytest.raises(UnknownTopic, match=rf"row 1 names a partition that topic {topic} does not have"):
        producer.produce_arrow(pa.table({"value": ["x", "y"], "partition": [0, 2]}), topic)
    with pytest.raises(RecordTooLarge, match=r"row 0 for .* is above max\.request\.size"):
        producer.produce_arrow(pa.table({"value": [bytes(2 << 20)]}), topic)
    with pytest.raises(UnknownTopic, match="names a partition"):
        producer.produce_arrow(pa.table({"value": ["x"]}), topic, partition=5)
    producer.close()
    with pytest.raises(IllegalState, match="closed"):
        producer.produce_arrow(pa.table({"value": ["x"]}), topic)


def test_records_that_the_broker_refuses(producer: Producer, admin: Admin) -> None:
    name = fresh()
    admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "1000"})]).check()
    future = producer.produce_arrow(pa.table({"value": [bytes(size) for size in (10, 20, 5000, 30, 40)]}), name)
    producer.flush(20)
    with pytest.raises(RecordTooLarge, match=r"1 of the 5 records that were taken are not in the log"):
        future.result(1)
    assert producer.produce_arrow(pa.table({"value": ["more"]}), name).result(10).offsets == {
        TopicPartition(name, 0): (4, 4)
    }


def test_a_stream_of_batches_ends_at_the_first_failure(admin: Admin, bootstrap_servers: str) -> None:
    name = fresh()
    admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "1000"})]).check()

    def for_ever() -> Iterator[Any]:
        while True:
            yield pa.record_batch({"value": [bytes(5000)]})

    with Producer(bootstrap_servers=bootstrap_servers, buffer_memory=100_000) as producer:
        future = producer.produce_arrow(for_ever(), name)
        with pytest.raises(RecordTooLarge, match="are not in the log"):
            future.result(20)


def test_memory_that_stays_full(bootstrap_servers: str, topic: str) -> None:
    producer = Producer(
        bootstrap_servers=bootstrap_servers, buffer_memory=3000, batch_size=1000, max_block_ms=300, linger_ms=60_000
    )
    producer.partitions_for(topic)
    producer._call(producer._core.network.close)  # nobody answers any more
    with pytest.raises(BufferExhausted, match=r"buffer\.memory \(3000 bytes\) was full for 300 ms"):
        producer.produce_arrow(pa.table({"value": [bytes(100)] * 100}), topic, partition=0)
    producer.close(0.1)


def test_transactions(bootstrap_servers: str, admin: Admin, topic: str, read: Read) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=fresh("tx")) as producer:
        producer.init_transactions(30)
        with pytest.raises(IllegalState, match=r"begin_transaction\(\) comes first"):
            producer.produce_arrow(pa.table({"value": ["too early"]}), topic)
        futures = []
        for number in range(4):
            producer.begin_transaction()
            table = pa.table({"value": [str(number)] * 3000, "partition": [0, 1, 1] * 1000})
            futures.append(producer.produce_arrow(table, topic))
            if number % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        assert [futures[number].result(1).records for number in (0, 2)] == [3000, 3000]
        for number in (1, 3):  # what was appended before the abort was appended
            assert futures[number].done()
        # What a broker refuses fails the transaction.
        name = fresh()
        admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "1000"})]).check()
        producer.begin_transaction()
        future = producer.produce_arrow(pa.table({"value": [bytes(5000)]}), name)
        with pytest.raises(IllegalState, match=r"abort_transaction\(\) is what is left"):
            producer.commit_transaction(30)
        assert isinstance(future.exception(1), RecordTooLarge)
        producer.abort_transaction(30)
    expected = [b"0"] * 1000 + [b"2"] * 1000 + [b"0"] * 2000 + [b"2"] * 2000
    assert [record.value for record in read(topic, 6000, isolation_level="read_committed")] == expected


def test_asyncio(bootstrap_servers: str, topic: str, read: Read) -> None:
    values = [str(number) for number in range(30_000)]

    async def write() -> Any:
        async with aio.Producer(bootstrap_servers=bootstrap_servers, buffer_memory=200_000) as producer:
            future = await producer.produce_arrow(pa.table({"value": values}), topic, partition=0)
            await producer.flush(30)
            return await future

    assert asyncio.run(write()) == (30_000, {TopicPartition(topic, 0): (0, 29_999)})
    assert [record.value for record in read(topic, 30_000)] == [value.encode() for value in values]


def test_without_pyarrow() -> None:
    code = "import sys; sys.modules['pyarrow'] = None; import ottla.client.producer.tables"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1] == f"ImportError: Arrow tables need pyarrow: {install_command('arrow')}"
