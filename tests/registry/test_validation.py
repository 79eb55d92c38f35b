"""Validation of schemas by the broker: topics refuse records whose schema is not registered."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla import Admin, ConfigResource, Consumer, NewTopic, Producer, ResourceType, TopicPartition
from ottla.client.errors import KafkaError
from ottla.protocol.errors import INVALID_CONFIG, INVALID_RECORD, NONE
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.compression import CODECS
from ottla.testing import Kafka
from tests.conformance.conftest import Closed, Wire, versions
from tests.conformance.message_sets import message, packed
from tests.registry.client import Registry
from tests.registry.produced import NOW, VALIDATED, alter_topic, batch_of, framed, is_accepted, send
from tests.registry.schemas import JSON_ONE, ONE, PROTO_ONE, TWO, record


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    """A broker with a registry, for tests with topics of their own."""
    with Kafka() as kafka:
        _ = kafka.registry
        yield kafka


@pytest.fixture
def topic(broker: Kafka, subject: str) -> str:
    """A topic whose values are validated."""
    broker.create_topic(subject, **VALIDATED)
    return subject


@pytest.fixture
def own(broker: Kafka) -> Registry:
    return Registry(broker.schema_registry_url)


@pytest.fixture
def wire(broker: Kafka) -> Iterator[Wire]:
    wire = Wire(broker.address, is_kafka=False)
    yield wire
    wire.close()


# Requests.


@pytest.mark.parametrize("version", versions(ProduceRequest))
def test_bad_records_are_named_and_their_batch_is_refused(own: Registry, topic: str, wire: Wire, version: int) -> None:
    good = framed(own.register(f"{topic}-value", ONE))
    other = own.register(f"{topic}-other", TWO)
    values = [good, framed(other), None, b"x"]
    if version < 3:
        magic = min(version, 1)
        bad, fine = (
            b"".join(message(at, b"k", value, magic, timestamp=NOW) for at, value in enumerate(held))
            for held in (values, [good, None])
        )
    else:
        bad, fine = batch_of(*values), batch_of(good, None)
    row = send(wire, topic, bad, version)
    assert (row.error_code, row.base_offset) == (INVALID_RECORD, -1)
    if version >= 8:
        named = [(record.batch_index, record.batch_index_error_message) for record in row.record_errors]
        assert named == [
            (1, f"Schema id {other} of the value is not registered under subject {topic}-value"),
            (3, "The value has 1 bytes: too few for magic byte and schema id"),
        ]
        assert named[0][1] in row.error_message
    row = send(wire, topic, fine, version)
    assert (row.error_code, row.base_offset) == (NONE, 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_compressed_message_sets_are_validated(own: Registry, topic: str, wire: Wire, magic: int) -> None:
    good = framed(own.register(f"{topic}-value", ONE))
    for value, code in ((b"x", INVALID_RECORD), (good, NONE)):
        row = send(wire, topic, packed(0, message(0, b"k", value, magic, timestamp=NOW), magic), 2)
        assert row.error_code == code


@pytest.mark.parametrize("codec", range(len(CODECS)))
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_compressed_batches_are_validated(
    broker: Kafka, own: Registry, topic: str, wire: Wire, codec: int, size: int
) -> None:
    """Batches of more than 4 MB when decompressed are checked in parts, and wait for the registry after that."""
    if codec == 0 and size > 10:
        return
    good = framed(own.register(f"{topic}-value", ONE), b"x" * size)
    count = 6
    row = send(wire, topic, batch_of(*[good] * count, codec=codec), 9)
    assert (row.error_code, row.base_offset) == (NONE, 0)
    row = send(wire, topic, batch_of(*[good] * count, b"x", codec=codec), 9)
    assert (row.error_code, [bad.batch_index for bad in row.record_errors]) == (INVALID_RECORD, [count])


def test_batch_with_acks_0_closes_the_connection_when_it_is_refused(own: Registry, topic: str, wire: Wire) -> None:
    good = framed(own.register(f"{topic}-value", ONE))
    rows = [
        TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch_of(value))])
        for value in (good, framed(own.register(f"{topic}-other", TWO)))
    ]
    for row in rows:
        wire.send_only(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[row]), 9, expect_answer=False)
    with pytest.raises(Closed):
        wire.receive()
    assert send(wire.another(), topic, batch_of(good)).base_offset == 1


def test_sequence_of_an_idempotent_producer_goes_on_after_a_refused_batch(
    own: Registry, topic: str, wire: Wire
) -> None:
    good = framed(own.register(f"{topic}-value", ONE))
    producer = wire.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1), 4)
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    assert send(wire, topic, batch_of(good, good, base_sequence=0, **identity)).base_offset == 0
    assert send(wire, topic, batch_of(b"x", good, base_sequence=2, **identity)).error_code == INVALID_RECORD
    row = send(wire, topic, batch_of(good, base_sequence=2, **identity))
    assert (row.error_code, row.base_offset) == (NONE, 2)
    again = send(wire, topic, batch_of(good, base_sequence=2, **identity))
    assert (again.error_code, again.base_offset) == (NONE, 2)


def test_rows_of_one_request_are_judged_apart(broker: Kafka, own: Registry, topic: str, wire: Wire) -> None:
    broker.create_topic(f"{topic}-free", 2)
    good = framed(own.register(f"{topic}-value", ONE))
    rows = [
        TopicProduceData(
            name=f"{topic}-free", partition_data=[PartitionProduceData(index=1, records=batch_of(b"anything"))]
        ),
        TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch_of(b"anything"))]),
        TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch_of(good))]),
    ]
    answer = wire.send(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=rows), 9)
    codes = [(row.error_code, row.base_offset) for topic in answer.responses for row in topic.partition_responses]
    assert codes == [(NONE, 0), (INVALID_RECORD, -1), (NONE, 0)]


def test_transactions_and_their_markers(broker: Kafka, own: Registry, topic: str) -> None:
    good = framed(own.register(f"{topic}-value", ONE))
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=f"tx-{topic}") as producer:
        producer.init_transactions()
        for value, is_good in ((good, True), (b"x", False), (good, True)):
            producer.begin_transaction()
            sent = producer.send(topic, value)
            if is_good:
                producer.commit_transaction()
                continue
            producer.flush()
            with pytest.raises(KafkaError, match="too few for magic byte"):
                sent.result()
            producer.abort_transaction()
    with Consumer(bootstrap_servers=broker.bootstrap_servers, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        assert [record.value for record in consumer.consume(2, timeout=10)] == [good, good]


# What a registry says.


def test_registered_id_is_accepted_at_once(broker: Kafka, own: Registry, topic: str) -> None:
    """A record that was rejected before its schema was registered is accepted by the next request."""
    for number, text in enumerate((ONE, TWO, record("id", note=0, more=1))):
        registered = framed(own.register(f"{topic}-other", text))
        assert not is_accepted(broker, topic, registered), number
        own.register(f"{topic}-value", text)
        assert is_accepted(broker, topic, registered), number


def test_deleted_version_counts_until_it_is_deleted_permanently(broker: Kafka, own: Registry, topic: str) -> None:
    good = framed(own.register(f"{topic}-value", record("deleted")))
    assert is_accepted(broker, topic, good)
    assert own.delete(f"/subjects/{topic}-value").status == 200
    assert is_accepted(broker, topic, good)
    assert own.delete(f"/subjects/{topic}-value?permanent=true").status == 200
    assert not is_accepted(broker, topic, good)


def test_guid_in_a_header_is_accepted(broker: Kafka, own: Registry, topic: str) -> None:
    number = own.register(f"{topic}-value", ONE)
    header = {"Confluent-Accept-Unknown-Properties": "true"}
    guid = own.ask("GET", f"/schemas/ids/{number}", headers=header).value["guid"]
    other = own.ask("GET", f"/schemas/ids/{own.register(f'{topic}-o', TWO)}", headers=header).value["guid"]
    assert is_accepted(
        broker, topic, b"payload", headers=[("__value_schema_id", b"\1" + bytes.fromhex(guid.replace("-", "")))]
    )
    assert not is_accepted(
        broker, topic, b"payload", headers=[("__value_schema_id", b"\1" + bytes.fromhex(other.replace("-", "")))]
    )
    assert not is_accepted(broker, topic, b"payload", headers=[("__value_schema_id", b"\1" * 17)])


def test_schema_of_another_context_is_not_that_of_the_subject(broker: Kafka, own: Registry, topic: str) -> None:
    number = own.register(f":.other:{topic}-value", record("elsewhere"))
    assert not is_accepted(broker, topic, framed(number + 1000))
    assert own.get(f"/schemas/ids/{number}/versions?subject=:.other:{topic}-value").status == 200


NESTED = 'syntax = "proto3";\npackage p;\nmessage A { message B { int32 x = 1; } int32 id = 1; }\nmessage C { int32 id = 1; }\n'


@pytest.mark.parametrize(
    ("kind", "text", "payload", "name"),
    [
        ("AVRO", record("id", name="n.Order"), b"x", "n.Order"),
        ("AVRO", '{"type":"record","name":"Order","namespace":"n","fields":[]}', b"", "n.Order"),
        ("AVRO", '"string"', b"x", "string"),
        ("JSON", '{"title":"Order","type":"object"}', b"{}", "Order"),
        ("PROTOBUF", NESTED, b"\0", "p.A"),
        ("PROTOBUF", NESTED, b"\2\2", "p.C"),
        ("PROTOBUF", NESTED, b"\4\0\0", "p.A.B"),
    ],
)
@pytest.mark.parametrize("strategy", ["RecordNameStrategy", "TopicRecordNameStrategy"])
def test_subject_is_named_by_the_record(
    broker: Kafka, own: Registry, subject: str, kind: str, text: str, payload: bytes, name: str, strategy: str
) -> None:
    configs = {
        **VALIDATED,
        "confluent.value.subject.name.strategy": f"io.confluent.kafka.serializers.subject.{strategy}",
    }
    broker.create_topic(subject, **configs)
    named = name if strategy == "RecordNameStrategy" else f"{subject}-{name}"
    number = own.register(named, text, kind)
    assert is_accepted(broker, subject, framed(number, payload))
    other = own.register(f"{subject}-value", text.replace("id", "identity"), kind)
    if other != number:
        assert not is_accepted(broker, subject, framed(other, payload))
    if kind == "PROTOBUF":
        assert not is_accepted(broker, subject, framed(number, b"\6\0\0\0"))


def test_schema_without_a_name_has_no_subject_by_it(broker: Kafka, own: Registry, subject: str) -> None:
    broker.create_topic(subject, **VALIDATED, confluent_value_subject_name_strategy="RecordNameStrategy")
    number = own.register(f"{subject}-value", JSON_ONE, "JSON")
    with pytest.raises(KafkaError, match="has no record name"):
        broker.produce(subject, framed(number, b"{}"))


def test_keys_are_validated_apart_from_values(broker: Kafka, own: Registry, subject: str) -> None:
    broker.create_topic(subject, confluent_key_schema_validation="true")
    number = own.register(f"{subject}-key", PROTO_ONE, "PROTOBUF")
    assert is_accepted(broker, subject, b"anything", key=framed(number, b"\0"))
    assert is_accepted(broker, subject, b"anything", key=None)
    assert not is_accepted(broker, subject, b"anything", key=b"k")


# Configs.


@pytest.fixture
def admin(broker: Kafka) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


def test_validation_begins_and_ends_with_the_config(broker: Kafka, admin: Admin, subject: str) -> None:
    broker.create_topic(subject)
    resource = ConfigResource(ResourceType.TOPIC, subject)
    described = admin.describe_configs([resource])[resource]
    assert not [name for name in described if name.startswith(("confluent.", "redpanda."))]
    assert is_accepted(broker, subject, b"x")
    alter_topic(admin, subject, confluent_value_schema_validation="true")
    assert admin.describe_configs([resource])[resource]["confluent.value.schema.validation"].value == "true"
    assert not is_accepted(broker, subject, b"x")
    alter_topic(admin, subject, retention_ms="1000000")
    assert not is_accepted(broker, subject, b"x")
    alter_topic(admin, subject, confluent_value_schema_validation="false")
    assert is_accepted(broker, subject, b"x")


def test_names_of_redpanda_do_the_same(broker: Kafka, own: Registry, admin: Admin, subject: str) -> None:
    broker.create_topic(subject, redpanda_value_schema_id_validation="true")
    resource = ConfigResource(ResourceType.TOPIC, subject)
    assert admin.describe_configs([resource])[resource]["redpanda.value.schema.id.validation"].value == "true"
    good = framed(own.register(f"{subject}-value", ONE))
    assert is_accepted(broker, subject, good)
    assert not is_accepted(broker, subject, b"x")
    alter_topic(admin, subject, redpanda_value_subject_name_strategy="TopicRecordNameStrategy")
    assert not is_accepted(broker, subject, good)
    own.register(f"{subject}-Order", ONE)
    assert is_accepted(broker, subject, good)


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({"confluent.value.schema.validation": "yes"}, "Expected value to be either true or false"),
        ({"confluent.value.subject.name.strategy": "MyStrategy"}, "String must be one of"),
        ({**VALIDATED, "redpanda.value.schema.id.validation": "false"}, "contradict each other"),
        (
            {
                "confluent.key.subject.name.strategy": "RecordNameStrategy",
                "redpanda.key.subject.name.strategy": "TopicNameStrategy",
            },
            "contradict each other",
        ),
    ],
)
def test_configs_that_are_refused(broker: Kafka, subject: str, configs: dict[str, Any], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        broker.create_topic(subject, **configs)
    assert refused.value.code == INVALID_CONFIG


def test_strategies_of_both_names_may_be_the_same(broker: Kafka, subject: str) -> None:
    broker.create_topic(
        subject,
        confluent_key_subject_name_strategy="io.confluent.kafka.serializers.subject.RecordNameStrategy",
        redpanda_key_subject_name_strategy="RecordNameStrategy",
    )


def test_validation_needs_a_registry() -> None:
    with Kafka() as kafka, Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        with pytest.raises(KafkaError, match="needs a schema registry, and the broker has none") as refused:
            kafka.create_topic("t", **VALIDATED)
        assert refused.value.code == INVALID_CONFIG
        results = admin.create_topics([NewTopic("t", 1, 1, config={"redpanda.key.schema.id.validation": "true"})])
        error = results.errors["t"]
        assert error is not None
        assert error.code == INVALID_CONFIG
        kafka.create_topic("t")
        with pytest.raises(KafkaError, match="--schema-registry"):
            alter_topic(admin, "t", confluent_value_schema_validation="true")
