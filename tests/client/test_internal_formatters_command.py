"""`ottla console-consumer` on internal topics: records by Kafka's formatters, on both brokers."""

import json
from typing import Any

import pytest

from ottla import Admin, Producer, TopicPartition
from ottla.protocol.codec import encode
from ottla.protocol.messages.group_metadata_record import GroupMetadataKey, GroupMetadataValue
from ottla.protocol.messages.remote_log_metadata_records import (
    RemotePartitionDeleteMetadataRecord,
    TopicIdPartitionEntry,
)
from ottla.protocol.messages.transaction_log_record import TransactionLogKey, TransactionLogValue

from .commands import Commands
from .conftest import fresh

OFFSET_KEY = bytes.fromhex("0001 0001 67 0001 74 00000000")
OFFSET_TOLD = {"type": 1, "data": {"group": "g", "topic": "t", "partition": 0}}
OLD_VALUE = bytes.fromhex("0001 0000000000000007 0000 0000000000000001 0000000000000002")
GROUP = (
    encode(GroupMetadataKey(group="g"), 0, b"\0\2"),
    encode(GroupMetadataValue(protocol_type="consumer", generation=3, protocol="range", leader="m"), 3, b"\0\3"),
)
PACKAGE = "org.apache.kafka.tools.consumer"


class Shown:
    """Records in a topic of their own, and what formatters say of them."""

    def __init__(self, commands: Commands, topic: str, records: list[tuple[bytes | None, bytes | None]]) -> None:
        with Producer(bootstrap_servers=commands.bootstrap_servers) as producer:
            for key, value in records:
                producer.produce(topic, value, key, 0)
        where = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(len(records))]
        self._words = where
        self._commands = commands

    def by(self, formatter: str, *words: str) -> list[Any]:
        result = self._commands.run("console-consumer", *self._words, "--formatter", formatter, *words)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    def refused(self, formatter: str) -> str:
        return self._commands.refused("console-consumer", *self._words, "--formatter", formatter)


def test_offsets_and_tombstones(commands: Commands, topic: str) -> None:
    """Other types, unknown types and records without keys are passed by."""
    records = [(OFFSET_KEY, OLD_VALUE), (OFFSET_KEY, None), (b"k0", b"v"), (None, b"v"), GROUP]
    shown = Shown(commands, topic, records).by(f"{PACKAGE}.OffsetsMessageFormatter")
    data = {"offset": 7, "metadata": "", "commitTimestamp": 1, "expireTimestamp": 2}
    assert shown == [
        {"key": OFFSET_TOLD, "value": {"version": 1, "data": data}},
        {"key": OFFSET_TOLD, "value": None},
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (OFFSET_KEY, b"\0\x63zz"),  # a version that is not known
        (OFFSET_KEY, b"\0\4\0"),
        (OFFSET_KEY, b"\0"),
        (OFFSET_KEY[:5], None),
        (b"\0", b"x"),
    ],
)
def test_an_unreadable_record_is_an_error_or_skipped(
    commands: Commands, topic: str, key: bytes, value: bytes | None
) -> None:
    shown = Shown(commands, topic, [(key, value), (OFFSET_KEY, None)])
    assert "Could not read record at offset 0 due to: " in shown.refused("OffsetsMessageFormatter")
    assert shown.by("OffsetsMessageFormatter", "--skip-message-on-error") == [{"key": OFFSET_TOLD, "value": None}]


def test_groups(commands: Commands, topic: str) -> None:
    shown = Shown(commands, topic, [GROUP, (OFFSET_KEY, None)])
    (group,) = shown.by(f"{PACKAGE}.GroupMetadataMessageFormatter")
    assert group["key"] == {"type": 2, "data": {"group": "g"}}
    assert list(group["value"]["data"]) == [
        "protocolType", "generation", "protocol", "leader", "currentStateTimestamp", "members",
    ]  # fmt: skip
    assert shown.by(f"{PACKAGE}.ShareGroupMessageFormatter") == []


def test_transactions(commands: Commands, topic: str) -> None:
    key = encode(TransactionLogKey(transactional_id="payments"), 0, b"\0\0")
    value = encode(TransactionLogValue(producer_id=4, transaction_status=1), 1, b"\0\1")
    (record,) = Shown(commands, topic, [(key, value)]).by(f"{PACKAGE}.TransactionLogMessageFormatter")
    assert record["key"] == {"type": 0, "data": {"transactionalId": "payments"}}
    assert "clientTransactionVersion" not in record["value"]["data"]


def test_share_groups(commands: Commands, topic: str, share_group: str) -> None:
    words = ["--topic", "__share_group_state", "--from-beginning", "--timeout-ms", "800"]
    output = commands.output(
        "console-consumer", *words, "--formatter", f"{PACKAGE}.group.share.ShareGroupStateMessageFormatter"
    )
    keys = [json.loads(line)["key"] for line in output.splitlines()]
    assert [key["data"]["partition"] for key in keys if key["data"]["groupId"] == share_group] in ([0, 1], [1, 0])


def test_remote_segments(commands: Commands, topic: str) -> None:
    entry = TopicIdPartitionEntry(name="flights", id=bytes(range(16)), partition=3)
    record = RemotePartitionDeleteMetadataRecord(topic_id_partition=entry, broker_id=2, event_timestamp_ms=14)
    with Producer(bootstrap_servers=commands.bootstrap_servers) as producer:
        producer.produce(topic, encode(record, 0, b"\1\2\0"), None, 0)
        producer.produce(topic, b"odd", None, 0)
    name = "org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde"
    words = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--formatter"]
    output = commands.output(
        "console-consumer",
        *words,
        f"{name}$RemoteLogMetadataFormatter",
        "--skip-message-on-error",
        "--max-messages",
        "2",
    )
    assert output == (
        "partition: 0, offset: 0, value: RemotePartitionDeleteMetadata{topicPartition=AAECAwQFBgcICQoLDA0ODw:flights-3, "
        "state=DELETE_PARTITION_MARKED, eventTimestampMs=14, brokerId=2}\n"
    )


def test_names_before_kafka_4(commands: Commands, topic: str) -> None:
    with Producer(bootstrap_servers=commands.bootstrap_servers) as producer:
        producer.produce(topic, None, OFFSET_KEY, 0)
    old = "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"
    words = ["--topic", topic, "--partition", "0", "--offset", "0", "--max-messages", "1", "--formatter"]
    result = commands.run("console-consumer", *words, old)
    assert json.loads(result.stdout) == {"key": OFFSET_TOLD, "value": None}
    warning = f"{old} is deprecated. Use {PACKAGE}.OffsetsMessageFormatter instead."
    assert result.stderr.splitlines()[0] == warning


def test_committed_offsets(commands: Commands, topic: str, admin: Admin) -> None:
    group = fresh("g")
    admin.alter_consumer_group_offsets(group, {TopicPartition(topic, 1): 3})
    words = ["--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "800"]
    output = commands.output("console-consumer", *words, "--formatter", "OffsetsMessageFormatter")
    (record,) = [record for record in map(json.loads, output.splitlines()) if record["key"]["data"]["group"] == group]
    assert record["key"]["data"] == {"group": group, "topic": topic, "partition": 1}
    assert (record["value"]["version"] >= 3, record["value"]["data"]["offset"]) == (True, 3)
