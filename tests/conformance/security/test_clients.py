"""Clients of other libraries log in with each mechanism that they have, on Ottla and on Apache Kafka."""

import asyncio
import uuid
import warnings
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import aiokafka
import confluent_kafka
import pytest

from tests.conformance.security.conftest import Secured
from tests.conformance.security.test_oauthbearer import token

with warnings.catch_warnings():
    # kafka-python reads its schemas by a function that Python has deprecated.
    warnings.filterwarnings("ignore", r"\w+_text is deprecated", DeprecationWarning)
    import kafka
    from kafka.net.sasl.oauth import AbstractTokenProvider


class Way(NamedTuple):
    """A way to log in: listener, mechanism, and the user with a password or a certificate."""

    listener: str
    mechanism: str | None = None
    user: str | None = None
    password: str | None = None
    certificate: str | None = None

    def __str__(self) -> str:
        return "-".join(filter(None, (self.listener, self.mechanism, self.certificate)))


WAYS: Final = [
    Way("TLS"),
    Way("MTLS", certificate="alice"),
    *(Way(listener, "PLAIN", "alice", "alice-secret") for listener in ("SASL", "SASLTLS")),
    *(
        Way(listener, f"SCRAM-SHA-{bits}", "scram", "scram-secret")
        for listener in ("SASL", "SASLTLS")
        for bits in (256, 512)
    ),
    Way("SASL", "OAUTHBEARER"),
]


def protocol(way: Way) -> str:
    return {"TLS": "SSL", "MTLS": "SSL", "SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL"}[way.listener]


def _librdkafka(broker: Secured, way: Way) -> dict[str, Any]:
    configs: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{broker.ports[way.listener]}",
        "security.protocol": protocol(way),
        "ssl.ca.location": str(broker.certificates / "ca.pem"),
    }
    if way.certificate is not None:
        path = str(broker.certificates / f"{way.certificate}.pem")
        configs |= {"ssl.certificate.location": path, "ssl.key.location": path}
    if way.mechanism is not None:
        configs["sasl.mechanism"] = way.mechanism
    if way.mechanism == "OAUTHBEARER":
        configs |= {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": "principal=olga"}
    elif way.user is not None:
        configs |= {"sasl.username": way.user, "sasl.password": way.password}
    return configs


def with_confluent_kafka(broker: Secured, way: Way, topic: str) -> bytes:
    configs = _librdkafka(broker, way)
    failed: list[Any] = []
    producer = confluent_kafka.Producer({**configs, "message.timeout.ms": 20_000})
    producer.produce(topic, b"v", on_delivery=lambda error, _: failed.append(error))
    producer.flush(30)
    assert failed == [None]
    consumer = confluent_kafka.Consumer({**configs, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    value = message.value()
    assert isinstance(value, bytes)
    return value


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Unsecured tokens for kafka-python."""

    def token(self) -> str:
        return token()


def _python(broker: Secured, way: Way) -> dict[str, Any]:
    configs: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{broker.ports[way.listener]}",
        "security_protocol": protocol(way),
        "sasl_mechanism": way.mechanism,
    }
    if way.user is not None:
        configs |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
    return configs


def with_kafka_python(broker: Secured, way: Way, topic: str) -> bytes:
    configs = _python(broker, way)
    configs["ssl_cafile"] = str(broker.certificates / "ca.pem")
    if way.certificate is not None:
        configs["ssl_certfile"] = configs["ssl_keyfile"] = str(broker.certificates / f"{way.certificate}.pem")
    if way.mechanism == "OAUTHBEARER":
        configs["sasl_oauth_token_provider"] = Tokens()
    producer = kafka.KafkaProducer(**configs)
    producer.send(topic, b"v").get(30)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **configs
    )
    value = next(iter(consumer)).value
    consumer.close()
    assert isinstance(value, bytes)
    return value


class AsyncTokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    """Unsecured tokens for aiokafka."""

    async def token(self) -> str:
        return token()


def with_aiokafka(broker: Secured, way: Way, topic: str) -> bytes:
    configs = {**_python(broker, way), "ssl_context": broker.tls_context(way.certificate)}
    configs["sasl_mechanism"] = way.mechanism or "PLAIN"
    if way.mechanism == "OAUTHBEARER":
        configs["sasl_oauth_token_provider"] = AsyncTokens()

    async def run() -> bytes:
        producer = aiokafka.AIOKafkaProducer(**configs)
        await producer.start()
        await producer.send_and_wait(topic, b"v")
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **configs)
        await consumer.start()
        record = await asyncio.wait_for(consumer.getone(), 30)
        await consumer.stop()
        assert isinstance(record.value, bytes)
        return record.value

    return asyncio.run(run())


@pytest.mark.usefixtures("sockets_of_kafka_python")
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("client", [with_confluent_kafka, with_kafka_python, with_aiokafka])
def test_login(secured: Secured, client: Callable[[Secured, Way, str], bytes], way: Way) -> None:
    assert client(secured, way, f"t-{uuid.uuid4().hex[:8]}") == b"v"
