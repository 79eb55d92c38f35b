"""The client on brokers of every release from 0.10.0 on: what it does there, and how it does without what they do not have."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla import LATEST, Admin, Consumer, NewTopic, Producer, ShareConsumer, TopicPartition, sql
from ottla.client.config import ClientConfig
from ottla.client.errors import KafkaError, UnsupportedVersion
from ottla.protocol.releases import RELEASES
from ottla.spark.cluster import ClusterClient
from ottla.spark.exactly_once import DECISIONS, prepare
from ottla.testing import Kafka

from .conftest import QUICK, fresh

SINCE_0_10 = RELEASES[RELEASES.index("0.10.0") :]


def at_least(release: str, first: str) -> bool:
    """Return whether a release is `first` or later."""
    return RELEASES.index(release) >= RELEASES.index(first)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """A broker that is each of the releases in turn."""
    with Kafka(QUICK) as broker:
        yield broker


@pytest.fixture(params=SINCE_0_10)
def release(request: pytest.FixtureRequest, kafka: Kafka) -> Iterator[str]:
    name: str = request.param
    with kafka.pin_versions(name):
        yield name


@pytest.fixture
def servers(kafka: Kafka, release: str) -> str:
    return kafka.bootstrap_servers


def read(servers: str, topic: str, count: int, **configs: Any) -> list[bytes | None]:
    """The first values of partition 0."""
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **configs) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: list[bytes | None] = []
        while len(values) < count:
            more = consumer.consume(count - len(values), timeout=5)
            assert more, values
            values += [record.value for record in more]
    return values


def test_records_there_and_back(kafka: Kafka, servers: str, release: str) -> None:
    kafka.create_topic(topic := fresh())
    values = [b"%d" % number for number in range(100)]
    headers = {"h": "x"} if at_least(release, "0.11.0") else None
    for codec in ("none", "zstd") if at_least(release, "2.1") else ("none", "gzip"):
        with Producer(bootstrap_servers=servers, compression_type=codec) as producer:
            for value in values:
                producer.produce(topic, value, key="k", timestamp=1234, headers=headers)
            assert producer.flush(10) == 0
    assert read(servers, topic, 200) == values * 2
    [record] = [record for record in kafka.records(topic) if record.offset == 150]
    assert (record.key, record.timestamp) == (b"k", 1234)
    assert record.headers == ([("h", b"x")] if headers else [])


def test_a_group_shares_and_commits(kafka: Kafka, servers: str, release: str) -> None:
    kafka.create_topic(topic := fresh(), 2)
    with Producer(bootstrap_servers=servers) as producer:
        for partition in (0, 1):
            producer.produce(topic, str(partition), partition=partition)
    group = fresh("g")
    configs = {"bootstrap_servers": servers, "group_id": group, "auto_offset_reset": "earliest"}
    protocols = ["classic", *(["consumer"] if at_least(release, "4.0") else [])]
    for protocol in protocols:
        with Consumer(group_protocol=protocol, **configs) as consumer:
            consumer.subscribe([topic])
            if protocol == protocols[0]:
                records = consumer.consume(2, timeout=10)
                assert sorted(record.value or b"" for record in records) == [b"0", b"1"]
                consumer.commit()
            else:
                assert consumer.consume(1, timeout=0.3) == []
            places = [TopicPartition(topic, index) for index in (0, 1)]
            assert {part: committed.offset for part, committed in consumer.committed(places).items()} == dict.fromkeys(
                places, 1
            )


def test_transactions(kafka: Kafka, servers: str, release: str) -> None:
    kafka.create_topic(topic := fresh())
    with Producer(bootstrap_servers=servers, transactional_id=fresh("tx")) as producer:
        if not at_least(release, "0.11.0"):
            with pytest.raises(UnsupportedVersion):
                producer.init_transactions(5)
            return
        producer.init_transactions(10)
        for value, ends in (
            ("a", producer.commit_transaction),
            ("b", producer.abort_transaction),
            ("c", producer.commit_transaction),
        ):
            producer.begin_transaction()
            producer.send(topic, value).result(10) if value == "b" else producer.produce(topic, value)
            ends(10)
    assert read(servers, topic, 2, isolation_level="read_committed") == [b"a", b"c"]


def test_administration(servers: str, release: str) -> None:
    topic = fresh()
    with Admin(bootstrap_servers=servers) as admin:
        if not at_least(release, "0.10.1"):
            with pytest.raises(UnsupportedVersion):
                admin.create_topics([NewTopic(topic, 1, 1)]).check()
            return
        admin.create_topics([NewTopic(topic, 2, 1)]).check()
        assert topic in admin.list_topics()
        described = admin.describe_topics([topic])[topic]
        assert len(described.partitions) == 2
        admin.delete_topics([topic]).check()
        assert topic not in admin.list_topics()


def test_newer_features_are_refused_in_one_sentence(servers: str, release: str) -> None:
    if at_least(release, "4.1"):
        with ShareConsumer(bootstrap_servers=servers, group_id=fresh("s")) as consumer:
            consumer.subscribe([fresh()])
            assert consumer.poll(0.05) == []
        return
    with ShareConsumer(bootstrap_servers=servers, group_id=fresh("s")) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(KafkaError) as caught:
            consumer.poll(5)
        assert isinstance(caught.value, UnsupportedVersion), caught.value


def test_headers_are_refused_where_they_would_be_lost(kafka: Kafka, servers: str, release: str) -> None:
    kafka.create_topic(topic := fresh())
    with Producer(bootstrap_servers=servers) as producer:
        assert producer.send(topic, "plain", headers={}).result(10).offset == 0
        with_headers = producer.send(topic, "v", headers={"h": "x"})
        if at_least(release, "0.11.0"):
            assert with_headers.result(10).offset == 1
            return
        with pytest.raises(UnsupportedVersion, match=r"record headers need Kafka 0\.11\.0 or newer"):
            with_headers.result(10)
        assert producer.send(topic, "next").result(10).offset == 1


@pytest.mark.parametrize(
    ("moment", "named", "offset"),
    [(150, "0.10.1", 2), (0, "0.10.1", 0), (-3, "3.0", 2), (-4, "3.5", 0), (-5, "3.9", -1)],
)
def test_an_offset_by_time_is_that_of_a_record_or_refused(
    kafka: Kafka, servers: str, release: str, moment: int, named: str, offset: int
) -> None:
    """Version 0 finds beginnings of segments, and a special value that is unknown was taken for a time."""
    kafka.create_topic(topic := fresh())
    with Producer(bootstrap_servers=servers) as producer:
        for at in (100, 101, 200):
            producer.produce(topic, "v", timestamp=at)
    place = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=servers) as admin:
        if at_least(release, named):
            assert admin.list_offsets({place: moment})[place].offset == offset
            return
        with pytest.raises(UnsupportedVersion, match=rf"needs Kafka {named} or newer"):
            admin.list_offsets({place: moment}).check()
        assert admin.list_offsets({place: LATEST})[place].offset == 3


def test_a_query_reads_any_release(kafka: Kafka, servers: str) -> None:
    pytest.importorskip("duckdb", reason="the extra sql")
    kafka.create_topic(topic := fresh(), 2)
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(10):
            producer.produce(topic, f"v{number}", partition=number % 2, timestamp=1_000_000 * number)
    for where, count in (
        ("true", 10),
        ("partition = 1", 5),
        ('"offset" >= 3', 4),
        ("timestamp >= TIMESTAMPTZ '1970-01-01 01:00:00Z'", 6),
        ("timestamp >= TIMESTAMPTZ '1980-01-01'", 0),
    ):
        assert sql(f'SELECT count(*) FROM "{topic}" WHERE {where}', bootstrap_servers=servers).fetchall() == [(count,)]


@pytest.mark.parametrize(
    ("name", "value", "served", "named"),
    [("group.instance.id", "i", "2.3", "2.3"), ("group.protocol", "consumer", "3.7", "4.0")],  # 3.7 to 3.9: by a config
)
def test_a_membership_that_came_later_is_refused(
    kafka: Kafka, servers: str, release: str, name: str, value: str, served: str, named: str
) -> None:
    kafka.create_topic(topic := fresh())
    with Consumer({"bootstrap.servers": servers, "group.id": fresh("g"), name: value}) as consumer:
        consumer.subscribe([topic])
        if at_least(release, served):
            assert consumer.consume(1, timeout=0.1) == []
            return
        with pytest.raises(UnsupportedVersion, match=rf"{name}.* needs? Kafka {named} or newer"):
            consumer.consume(1, timeout=10)


def test_the_exactly_once_sink_creates_its_topics(servers: str, release: str) -> None:
    """Before 2.4 brokers have no default for the number of replicas, and the sink could not be used."""
    client = ClusterClient(ClientConfig({"bootstrap.servers": servers}))
    try:
        if not at_least(release, "0.11.0"):
            with pytest.raises(UnsupportedVersion, match=r"InitProducerId, which needs Kafka 0\.11\.0 or newer"):
                prepare(client)
            return
        prepare(client)
        assert len(client.topic(DECISIONS).leaders) == 8
        client.ensure_topic(topic := fresh(), 3, {"cleanup.policy": "compact"})
        assert len(client.topic(topic).leaders) == 3
    finally:
        client.close()
