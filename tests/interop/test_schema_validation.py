"""Records that a topic refuses for their schema: what producers of others show of the reason."""

import asyncio
import json
import subprocess
import warnings

import aiokafka
import confluent_kafka
import pytest
from aiokafka.errors import KafkaError as AIOKafkaError
from confluent_kafka.schema_registry import SchemaRegistryClient, avro
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.testing import Kafka
from tests.registry.produced import VALIDATED
from tests.registry.schemas import ONE

from .apache_kafka import skip_without
from .clients.environments import NodePackage
from .java_processes import tool
from .programs import command_of, interop_only

with warnings.catch_warnings():
    warnings.filterwarnings(
        "ignore", r"\w+_text is deprecated", DeprecationWarning
    )  # kafka-python reads its schemas so
    from kafka import KafkaProducer
    from kafka.errors import InvalidRecordError

REASON = "The value begins with byte 110, not with magic byte 0 and a schema id"
BAD = b"not framed"


@pytest.fixture
def good(kafka: Kafka) -> bytes:
    """A value that confluent-kafka's serializer has written and registered."""
    with SchemaRegistryClient({"url": kafka.schema_registry_url}) as client:
        kafka.create_topic("orders", **VALIDATED)
        serializer = avro.AvroSerializer(client, ONE)
        written = serializer({"id": 1}, SerializationContext("orders", MessageField.VALUE))
    assert isinstance(written, bytes)
    return written


def test_confluent_kafka(kafka: Kafka, good: bytes) -> None:
    outcomes: list[str] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in (good, BAD):
        producer.produce("orders", value, callback=lambda error, _: outcomes.append(str(error)))
        producer.flush(10)
    assert outcomes[0] == "None"
    assert "INVALID_RECORD" in outcomes[1]


@pytest.mark.usefixtures("sockets_of_kafka_python")
def test_kafka_python(kafka: Kafka, good: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    try:
        producer.send("orders", good).get(10)
        with pytest.raises(InvalidRecordError, match=REASON):
            producer.send("orders", BAD).get(10)
    finally:
        producer.close()


def test_aiokafka(kafka: Kafka, good: bytes) -> None:
    async def produce() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            await producer.send_and_wait("orders", good)
            with pytest.raises(AIOKafkaError):  # it does not know the code
                await producer.send_and_wait("orders", BAD)

    asyncio.run(produce())


def test_kafkajs_with_its_registry_client(kafka: Kafka, request: pytest.FixtureRequest) -> None:
    interop_only(request, "npm fetches the client")
    command = command_of(NodePackage("schemas.js"))
    url = kafka.schema_registry_url
    for kind in ("avro", "json", "protobuf"):
        kafka.create_topic(f"orders-{kind}", **VALIDATED)
    done = subprocess.run(
        [*command, kafka.bootstrap_servers, url, "orders"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    *kinds, bad = json.loads(done.stdout)
    assert [(row["type"], row["decoded"]) for row in kinds] == [("AVRO", 7), ("JSON", 7), ("PROTOBUF", 7)]
    assert all(row["id"] == row["latest"] for row in kinds)
    assert bad["refused"] is not None


def test_java(kafka: Kafka, request: pytest.FixtureRequest) -> None:
    """Each record's callback has an InvalidRecordException with the reason of that record."""
    skip_without("kafka-tools-4.3.1", request)
    _ = kafka.registry
    kafka.create_topic("orders", **VALIDATED)
    where = ["--bootstrap-server", kafka.bootstrap_servers, "--topic", "orders"]
    producer = tool("VerifiableProducer", *where, "--max-messages", "2")
    try:
        producer.process.wait(60)
        producer.join(60)
    finally:
        producer.close()
    errors = producer.named("producer_send_error")
    assert len(errors) == 2
    for error in errors:
        assert error["exception"].endswith("InvalidRecordException")
        assert error["message"] == "The value has 1 bytes: too few for magic byte and schema id"
