"""MirrorMaker 2 copies from one broker to another one, exactly once: records, topic configs, ACLs and committed offsets, while
it is killed and started again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

import ottla
from ottla.testing import EmbeddedBroker
from tests.free_ports import free_ports

from .apache_kafka import ApacheKafka, skip_without
from .clients.environments import Jars
from .committed import committed_messages, offset
from .conftest import CONFIGS, PARTITIONS
from .programs import command_of, interop_only, running, wait_until

MIRROR_MAKER = Jars(
    (
        "org.apache.kafka:connect-mirror:4.3.1",
        "org.apache.kafka:connect-runtime:4.3.1",
        "org.slf4j:slf4j-nop:1.7.36",
    ),
    ("Mirror",),
)
COPY = "here.orders"
ROUNDS = 3
RECORDS = 300
SETTINGS = {
    "clusters": "here, there",
    "here->there.enabled": "true",
    "here->there.topics": "orders",
    "there->here.enabled": "false",
    "there.exactly.once.source.support": "enabled",
    "here.consumer.isolation.level": "read_committed",
    "dedicated.mode.enable.internal.rest": "true",
    "replication.factor": "1",
    "sync.group.offsets.enabled": "true",
    "offset.lag.max": "0",  # an offset that was committed is translated exactly
    **{
        f"{interval}.interval.seconds": "1"
        for interval in (
            "refresh.topics",
            "refresh.groups",
            "sync.topic.configs",
            "sync.topic.acls",
            "sync.group.offsets",
            "emit.checkpoints",
        )
    },
    **{
        f"{kind}.replication.factor": "1"
        for kind in (
            "checkpoints.topic",
            "heartbeats.topic",
            "offset-syncs.topic",
            "offset.storage",
            "status.storage",
            "config.storage",
        )
    },
}
WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
pytestmark = pytest.mark.timeout(300)


def write(bootstrap: str, numbers: range) -> None:
    """Write records in one transaction, after one that is aborted: with keys, null values, headers and timestamps."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    producer.init_transactions()
    for commit in (False, True):
        producer.begin_transaction()
        for number in numbers:
            producer.produce(
                "orders",
                None if number % 10 == 9 else b"value %d" % number if commit else b"aborted",
                b"key %d" % number,
                partition=number % PARTITIONS,
                timestamp=1_700_000_000_000 + number,
                headers=[("number", b"%d" % number), ("null", None)],
            )
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def content(message: Message) -> tuple[object, ...]:
    return message.key(), message.value(), message.headers(), message.timestamp()


def committed_records(bootstrap: str, topic: str) -> list[list[tuple[int, tuple[object, ...]]]]:
    """Return offset and content of the committed records of each partition."""
    partitions = committed_messages(bootstrap, topic, PARTITIONS)
    return [[(offset(message), content(message)) for message in partition] for partition in partitions]


def contents(partitions: list[list[tuple[int, tuple[object, ...]]]]) -> list[list[tuple[object, ...]]]:
    return [[values for _, values in partition] for partition in partitions]


@contextmanager
def start_broker(kind: str, directory: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker with ACLs; yields its address."""
    if kind == "ottla":
        with EmbeddedBroker({**CONFIGS, **WITH_ACLS}, data_dir=directory) as embedded:
            yield embedded.bootstrap_servers
        return
    skip_without("kafka-4.4.0", request)
    kafka = ApacheKafka(directory, "4.4.0", *(f"{name}={value}" for name, value in WITH_ACLS.items()))
    try:
        yield kafka.bootstrap_servers
    finally:
        kafka.stop()


@pytest.mark.parametrize(
    "brokers", [("ottla", "ottla"), ("kafka", "ottla"), ("ottla", "kafka")], ids=lambda kinds: " to ".join(kinds)
)
def test_a_copy_is_exact_although_the_mirror_maker_dies(
    brokers: tuple[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    interop_only(request, "it takes a minute")
    command = command_of(MIRROR_MAKER)
    with (
        start_broker(brokers[0], tmp_path / "here", request) as here,
        start_broker(brokers[1], tmp_path / "there", request) as there,
    ):
        settings = {
            **SETTINGS,
            "here.bootstrap.servers": here,
            "there.bootstrap.servers": there,
            "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
        }
        properties = tmp_path / "mirror.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        check_mirroring(command, properties, here, there)


def check_mirroring(command: list[str], properties: Path, here: str, there: str) -> None:
    """Write while a MirrorMaker copies and is killed; compare the topic and its copy."""
    acl = ottla.AclBinding(
        ottla.ResourcePattern(ottla.AclResourceType.TOPIC, "orders"),
        ottla.AccessControlEntry("User:ada", ottla.AclOperation.READ),
    )
    with ottla.Admin(bootstrap_servers=here) as source, ottla.Admin(bootstrap_servers=there) as target:
        source.create_topics([ottla.NewTopic("orders", PARTITIONS, config={"retention.ms": "-1"})]).check()
        source.create_acls([acl]).check()

        def copied() -> int:
            """Return the number of offsets of the copy, those of open transactions and markers among them."""
            if COPY not in target.list_topics():
                return 0
            ends = target.list_offsets(
                {ottla.TopicPartition(COPY, number): ottla.LATEST for number in range(PARTITIONS)}
            )
            return sum(ends[partition].offset for partition in ends.successes)

        for round_ in range(ROUNDS):
            write(here, range(round_ * RECORDS, (round_ + 1) * RECORDS))
            before = copied()
            with running([*command, str(properties)]) as process:
                # It is killed with records that it has sent, and not committed.
                wait_until(process, lambda before=before: copied() > before)  # type: ignore[misc]
        write(here, range(ROUNDS * RECORDS, (ROUNDS + 1) * RECORDS))
        with running([*command, str(properties)]) as process:
            wait_until(process, lambda: sum(map(len, committed_records(there, COPY))) >= (ROUNDS + 1) * RECORDS)
            originals, copies = committed_records(here, "orders"), committed_records(there, COPY)
            assert contents(copies) == contents(originals)

            # Committed offsets are translated by records that this MirrorMaker has copied: at the end there is no earlier one.
            for number, partition in enumerate(originals):
                place, end = ottla.TopicPartition("orders", number), partition[-1][0] + 1
                source.alter_consumer_group_offsets("readers", {place: end}).check()
            ends = {ottla.TopicPartition(COPY, number): records[-1][0] + 1 for number, records in enumerate(copies)}

            def are_translated() -> bool:
                offsets = target.list_consumer_group_offsets(["readers"])["readers"]
                assert all(entry.offset <= ends[place] for place, entry in offsets.items()), (
                    "a record would be left out"
                )
                return {place: entry.offset for place, entry in offsets.items()} == ends

            wait_until(process, are_translated)
            resource = ottla.ConfigResource(ottla.ResourceType.TOPIC, COPY)
            wait_until(process, lambda: target.describe_configs([resource])[resource]["retention.ms"].value == "-1")
            wait_until(process, lambda: [binding.pattern.name for binding in target.describe_acls()] == [COPY])
