"""Kafka's console consumer with its formatters reads what the coordinators write into their topics."""

import json
import subprocess
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from .apache_kafka import SCRIPT, skip_without
from .conftest import PARTITIONS, RECORDS, Cluster
from .test_confluent_kafka import consumer, create, positions, produce, take

pytestmark = pytest.mark.timeout(240)


def formatted(bootstrap: str, topic: str, formatter: str) -> list[dict[str, Any]]:
    """Read an internal topic with the console consumer, from its beginning: one object for each record that the
    formatter takes for its own."""
    command = [str(SCRIPT), "tool", "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    command += ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--timeout-ms", "6000"]
    command += ["--formatter", f"org.apache.kafka.tools.consumer.{formatter}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    records, rest, decoder = [], done.stdout, json.JSONDecoder()
    while rest.startswith("{"):
        one, end = decoder.raw_decode(rest)
        records.append(one)
        rest = rest[end:].lstrip()
    assert "Processed a total of" in rest + done.stderr, done.stdout[-1000:] + done.stderr[-1000:]
    return records


@pytest.fixture(autouse=True)
def _tools(request: pytest.FixtureRequest) -> None:
    skip_without("kafka-tools-4.3.1", request)


def test_offsets_and_groups(cluster: Cluster, topic: str, group: str) -> None:
    create(cluster.bootstrap, topic)
    produce(cluster.bootstrap, topic, range(RECORDS))
    member = consumer(cluster.bootstrap, group, topic)
    take([member], lambda _: positions([member]) == RECORDS)
    member.commit(asynchronous=False)
    reached = {part.partition: part.offset for part in member.position(member.assignment())}

    keys = [{"group": group, "topic": topic, "partition": number} for number in range(PARTITIONS)]
    records = formatted(cluster.bootstrap, "__consumer_offsets", "OffsetsMessageFormatter")
    mine = {record["key"]["data"]["partition"]: record for record in records if record["key"]["data"]["group"] == group}
    assert [mine[number]["key"] for number in range(PARTITIONS)] == [{"type": 1, "data": key} for key in keys]
    assert {record["value"]["version"] for record in mine.values()} == {4}
    assert {number: record["value"]["data"]["offset"] for number, record in mine.items()} == reached

    records = formatted(cluster.bootstrap, "__consumer_offsets", "GroupMetadataMessageFormatter")
    groups = [record for record in records if record["key"] == {"type": 2, "data": {"group": group}}]
    newest = groups[-1]["value"]["data"]
    member_id = newest["leader"]
    assert (newest["protocolType"], newest["protocol"]) == ("consumer", "range")
    assert [(entry["memberId"], entry["clientId"]) for entry in newest["members"]] == [(member_id, "rdkafka")]
    member.close()


def test_transactions(cluster: Cluster, topic: str, group: str) -> None:
    create(cluster.bootstrap, topic)
    name = f"transactions-of-{topic}"
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    producer.send_offsets_to_transaction([TopicPartition(topic, 1, 5)], reader.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    committed = reader.committed([TopicPartition(topic, 1)], timeout=30)
    assert [part.offset for part in committed] == [5]
    reader.close()

    records = formatted(cluster.bootstrap, "__transaction_state", "TransactionLogMessageFormatter")
    mine = [record for record in records if record["key"] == {"type": 0, "data": {"transactionalId": name}}]
    states = [record["value"]["data"]["transactionStatus"] for record in mine]
    assert sorted(set(states)) == [0, 1, 2, 4]  # empty, ongoing, prepared to commit, committed
    assert states == sorted(states)
    topics = [entry["topic"] for entry in mine[states.index(2)]["value"]["data"]["transactionPartitions"]]
    assert sorted(topics) == ["__consumer_offsets", topic]
