"""Client, commands, console and Spark with real old brokers: the table of docs/python.md (`scripts/interop old-brokers`)."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclResourceType,
    Admin,
    ConfigChange,
    ConfigResource,
    Consumer,
    FeatureUpdate,
    KafkaError,
    NewTopic,
    PatternType,
    Producer,
    ResourcePattern,
    ResourceType,
    ShareConsumer,
    TopicPartition,
    sql,
)
from ottla.client.errors import BrokersUnreachable, UnsupportedVersion
from ottla.protocol.errors import UNSUPPORTED_COMPRESSION_TYPE
from ottla.protocol.releases import RELEASES, release_named
from tests.client.commands import Commands
from tests.conformance.members import wait_for
from tests.console import Broker
from tests.console.browser import browsing, console_application, settings_for
from tests.free_ports import free_ports
from tests.spark.conftest import started_session

from .apache_kafka import CACHE
from .test_oldest_brokers import SCRIPT, java_11

pytestmark = pytest.mark.timeout(300)
SUPPORTED = [
    *("0.10.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1", "2.1.1", "2.2.2", "2.3.1", "2.4.1", "2.8.2"),
    *("3.3.2", "3.6.2", "3.9.1", "4.0.1", "4.1.1"),
]
REFUSED = ["0.8.2.2", "0.9.0.1"]


def is_since(version: str, release: str) -> bool:
    """Return whether a version is of a release or a later one."""
    return RELEASES.index(release_named(version)) >= RELEASES.index(release)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with started_session("old-brokers") as session:
        yield session


def authorizer(version: str) -> list[str]:
    """Configs of a broker that keeps ACLs."""
    if is_since(version, "3.0"):
        name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    else:
        name = f"kafka.security.auth{'orizer.Acl' if is_since(version, '2.4') else '.SimpleAcl'}Authorizer"
    return [f"authorizer.class.name={name}", "super.users=User:ANONYMOUS"]


def java_for(version: str, config: pytest.Config) -> str:
    """Java that runs a release; skips where it or the release is missing."""
    if not config.getoption("--interop"):
        pytest.skip("runs with --interop")
    if not (CACHE / f"kafka-old-{version}" / ".complete").exists():
        pytest.skip(f"no kafka-old-{version} in {CACHE}: start it with bench/reference/kafka-old once")
    java = "java" if is_since(version, "2.4") else java_11()
    if not java:
        pytest.skip("no Java 11: set JAVA_11")
    return java


@contextmanager
def broker_of(version: str, java: str, directory: Path, *configs: str) -> Iterator[int]:
    """Port of a running broker, whose ZooKeeper is two ports above."""
    port = next(port for port in free_ports(3) if port < 65_000)
    command = [str(SCRIPT), "start", version, str(port), str(directory), *configs]
    try:
        subprocess.run(command, env={**os.environ, "JAVA": java}, check=True, timeout=100, stdout=subprocess.DEVNULL)
        yield port
    finally:
        subprocess.run([str(SCRIPT), "stop", str(directory)], check=False, timeout=60, stdout=subprocess.DEVNULL)


@pytest.fixture
def servers(tmp_path: Path, request: pytest.FixtureRequest, version: str) -> Iterator[str]:
    java = java_for(version, request.config)
    with broker_of(version, java, tmp_path, *authorizer(version)) as port:
        yield f"127.0.0.1:{port}"


@pytest.mark.parametrize("version", SUPPORTED)
def test_a_supported_broker(servers: str, version: str, spark: SparkSession) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        topics = [NewTopic("flights", 2, 1), NewTopic("from-spark", 2, 1)]
        if is_since(version, "0.10.1"):
            admin.create_topics(topics).check()
        else:
            with pytest.raises(UnsupportedVersion, match=r"needs Kafka 0\.10\.1 or newer"):
                admin.create_topics(topics)
    check_codecs(servers, version)
    check_group(servers)
    check_transactions(servers, version)
    check_query(servers, version)
    if is_since(version, "0.10.1"):
        check_commands(Commands(servers), version)
    for release, use in FEATURES.values():
        check_feature(servers, version, release, use)
    check_console(servers, version)
    check_spark(spark, servers, version)


def check_feature(servers: str, version: str, release: str, use: Callable[[str], None]) -> None:
    if is_since(version, release):
        use(servers)
        return
    lacks_the_api = is_since(version, "0.10.1") or use is not create_with_defaults
    with pytest.raises(UnsupportedVersion, match=rf"Kafka {release if lacks_the_api else '0.10.1'}\b"):
        use(servers)


def check_codecs(servers: str, version: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with Producer(bootstrap_servers=servers, compression_type=codec) as producer:
            future = producer.send("flights", b"v" * 100, partition=0)
            producer.flush(20)
        if codec == "zstd" and not is_since(version, "2.1"):
            error = future.exception()
            assert isinstance(error, KafkaError)
            assert error.code == UNSUPPORTED_COMPRESSION_TYPE
        else:
            assert future.result().offset >= 0


def check_group(servers: str) -> None:
    configs = {"group.id": "readers", "auto.offset.reset": "earliest"}
    with Consumer({"bootstrap.servers": servers, **configs}) as consumer:
        consumer.subscribe(["flights"])
        read = 0
        while read < 4:
            records = consumer.consume(4 - read, timeout=30)
            assert records
            assert {record.value for record in records} == {b"v" * 100}
            read += len(records)
        consumer.commit()


def check_transactions(servers: str, version: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id="payments") as producer:
        if not is_since(version, "0.11.0"):
            with pytest.raises(UnsupportedVersion, match=r"needs Kafka 0\.11\.0 or newer"):
                producer.init_transactions()
            return
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("flights", b"paid", partition=1)
        producer.commit_transaction()


def check_query(servers: str, version: str) -> None:
    """All records, by each codec, and predicates on partition, offset and time."""
    pytest.importorskip("duckdb", reason="the extra sql")
    paid = [(1, 1)] if is_since(version, "0.11.0") else []
    counts = "SELECT partition, count(*) FROM flights GROUP BY partition ORDER BY partition"
    sent = 5 if is_since(version, "2.1") else 4  # one of each codec
    # Kafka acknowledges the end of a transaction before it has written the markers.
    wait_for(lambda: sql(counts, bootstrap_servers=servers).fetchall() == [(0, sent), *paid])
    recent = 'partition = 0 AND "offset" >= 1 AND timestamp > now() - INTERVAL 1 day AND value = raw_value::VARCHAR'
    assert sql(f"SELECT count(*) FROM flights WHERE {recent}", bootstrap_servers=servers).fetchall() == [(sent - 1,)]


def check_commands(commands: Commands, version: str) -> None:
    words = ["--create", "--topic", "made", "--partitions", "1"]
    if is_since(version, "2.4"):
        commands.output("topics", *words)
    else:
        assert "--replication-factor" in commands.refused("topics", *words)
        commands.output("topics", *words, "--replication-factor", "1")
    assert "made" in commands.output("topics", "--list").split()
    assert "flights:0:" in commands.output("get-offsets", "--topic", "flights")
    assert "readers" in commands.output("consumer-groups", "--describe", "--group", "readers")


def send_headers(servers: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("flights", b"v", headers={"h": b"x"}).result(20)


def delete_records(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        assert admin.delete_records({TopicPartition("flights", 0): 1})[TopicPartition("flights", 0)] == 1


def list_committed_offsets(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        assert admin.list_consumer_group_offsets(["readers"])["readers"]


PAGES = {
    "": "0.10.0",
    "/topics": "0.10.0",
    "/topics/flights": "0.10.0",
    "/topics/flights/messages": "0.10.0",
    "/topics/flights/messages/0/1": "0.10.0",
    "/groups": "0.10.0",
    "/brokers/1": "0.10.0",
    "/log-dirs": "0.10.0",
    "/transactions": "0.10.0",
    "/topics/flights/configs": "0.11.0",
    "/acls": "0.11.0",
    "/quotas": "2.6",
    "/users": "2.7",
}
"""First release with which each page of the console works; what an older broker lacks is said on it in one sentence."""


def check_console(servers: str, version: str) -> None:
    with browsing(console_application(settings_for(Broker(servers)))) as browser:
        if is_since(version, "0.10.1"):  # 0.10.0 forgets a group whose members have left
            browser.get("/group?id=readers", 200 if is_since(version, "0.10.2") else 501)
        for path, release in PAGES.items():
            lacks_scram = is_since(version, "3.3") and not is_since(version, "3.5")  # KRaft had no SCRAM at first
            if is_since(version, release) and not (path == "/users" and lacks_scram):
                browser.get(path)
            else:
                assert f"needs Kafka {release} or newer" in browser.get(path, 501)


def keep_acls(servers: str, pattern_type: PatternType = PatternType.LITERAL) -> None:
    pattern = ResourcePattern(AclResourceType.TOPIC, "flights", pattern_type)
    binding = AclBinding(pattern, AccessControlEntry("User:ada", operation=AclOperation.READ))
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_acls([binding]).check()
        assert binding in admin.describe_acls(binding.to_filter())
        assert binding in admin.describe_acls()  # patterns of any type


def keep_prefixed_acls(servers: str) -> None:
    keep_acls(servers, PatternType.PREFIXED)


def return_as_a_static_member(servers: str) -> None:
    configs = {"group.id": "static", "group.instance.id": "i1", "auto.offset.reset": "earliest"}
    members = []
    for _ in range(2):
        with Consumer({"bootstrap.servers": servers, **configs}) as consumer:
            consumer.subscribe(["flights"])
            assert consumer.consume(1, timeout=30)
            members.append(consumer.consumer_group_metadata().generation)
    assert members[0] == members[1]  # it has not left, and its return is no rebalance


def change_one_config(servers: str) -> None:
    topic = ConfigResource(ResourceType.TOPIC, "flights")
    with Admin(bootstrap_servers=servers) as admin:
        admin.incremental_alter_configs({topic: [ConfigChange("retention.ms", "86400000")]}).check()
        assert admin.describe_configs([topic])[topic]["retention.ms"].value == "86400000"


def create_with_defaults(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("defaults")]).check()


def join_with_the_consumer_protocol(servers: str) -> None:
    configs = {"group.id": "new", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    with Consumer({"bootstrap.servers": servers, **configs}) as consumer:
        consumer.subscribe(["flights"])
        assert consumer.consume(1, timeout=30)


def read_in_a_share_group(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        if admin.describe_features().supported.get("share.version"):
            admin.update_features({"share.version": FeatureUpdate(1)}).check()
    with ShareConsumer(bootstrap_servers=servers, group_id="share") as consumer:
        consumer.subscribe(["flights"])
        deadline = time.monotonic() + 60
        while not consumer.poll(1):
            assert time.monotonic() < deadline
            send_headers(servers)  # it reads what comes after it has joined


FEATURES: dict[str, tuple[str, Callable[[str], None]]] = {
    "offsets of groups": ("0.10.2", list_committed_offsets),
    "headers": ("0.11.0", send_headers),
    "delete_records": ("0.11.0", delete_records),
    "ACLs": ("0.11.0", keep_acls),
    "ACLs for prefixes": ("2.0", keep_prefixed_acls),
    "static members": ("2.3", return_as_a_static_member),
    "incremental_alter_configs": ("2.3", change_one_config),
    "default partitions": ("2.4", create_with_defaults),
    "group.protocol=consumer": ("4.0", join_with_the_consumer_protocol),
    "share groups": ("4.1", read_in_a_share_group),
}
"""First release, and a use that fails with UnsupportedVersion before."""


def check_spark(spark: SparkSession, servers: str, version: str) -> None:
    """A batch is written, read as a batch and as a stream, and written exactly once where there are transactions."""
    options = {"kafka.bootstrap.servers": servers, "topic": "from-spark"}
    rows = spark.createDataFrame([(f"k{n}", f"v{n}") for n in range(40)], "key string, value string")
    rows.write.format("ottla").options(**options).mode("append").save()
    reading = {"kafka.bootstrap.servers": servers, "subscribe": "from-spark", "startingOffsets": "earliest"}
    batch = spark.read.format("ottla").options(**reading)
    values = [bytes(row["value"]).decode() for row in batch.load().collect()]
    assert sorted(values) == sorted(f"v{n}" for n in range(40))
    stream = spark.readStream.format("ottla").options(**reading).load()
    name = f"read_{version.replace('.', '_')}"
    query = stream.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert spark.table(name).count() == 40
    exactly_once = rows.write.format("ottla").options(**options, exactlyOnce="true", sinkId="s").mode("append")
    if is_since(version, "0.11.0"):
        exactly_once.save()
        assert batch.option("kafka.isolation.level", "read_committed").load().count() == 80
    else:
        with pytest.raises(Exception, match=r"needs Kafka 0\.11\.0 or newer"):
            exactly_once.save()


@pytest.mark.parametrize("version", REFUSED)
def test_a_broker_that_is_too_old_is_named_in_one_line(servers: str, version: str) -> None:
    del version
    with (
        Admin(bootstrap_servers=servers, default_api_timeout_ms=5000) as admin,
        pytest.raises(BrokersUnreachable, match=r"Brokers before Kafka 0\.10 are not supported") as raised,
    ):
        admin.list_topics()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("version", "reads_from"), [("2.3.1", 1), ("2.4.1", 2), ("2.8.2", 2)])
def test_reads_from_the_nearest_replica(
    tmp_path: Path, request: pytest.FixtureRequest, version: str, reads_from: int
) -> None:
    java = java_for(version, request.config)
    selector = "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with ExitStack() as stack:
        first = stack.enter_context(broker_of(version, java, tmp_path / "1", selector, "broker.rack=a"))
        shared = ["broker.id=2", f"zookeeper.connect=127.0.0.1:{first + 2}", "broker.rack=b", selector]
        stack.enter_context(broker_of(version, java, tmp_path / "2", *shared))
        servers = f"127.0.0.1:{first}"
        with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
            admin.create_topics([NewTopic("flights", replica_assignment=((1, 2),))]).check()
            for number in range(100):
                producer.produce("flights", b"%d" % number)
            producer.flush(30)
        partition = TopicPartition("flights", 0)
        configs = {"client.rack": "b", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        with Consumer({"bootstrap.servers": servers, **configs}) as consumer:
            consumer.assign([partition])
            read: list[int] = []
            while len(read) < 100:
                records = consumer.consume(10, timeout=30)
                assert records
                read += [int(record.value or b"") for record in records]
            assert read == list(range(100))
            preferred = consumer._consumer._positions.states[partition].preferred
            assert (preferred[0] if preferred else 1) == reads_from
