"""Clients with security, against the listeners of `secured.py`: on Ottla, or with `--secured-kafka` on Apache Kafka."""

import asyncio
import uuid
from typing import Any, Final

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, aio
from ottla.client.errors import KafkaError
from tests.conformance.authorization.conftest import authorized
from tests.conformance.security.conftest import Secured, secured

__all__ = ["Logins", "asyncio_round_trip", "authorized", "fresh", "logins", "refusal", "round_trip", "secured"]

_MODULES: Final = "org.apache.kafka.common.security"
Configs = dict[str, Any]


class Logins:
    """Configs of clients by listener and mechanism."""

    def __init__(self, broker: Secured) -> None:
        self.broker = broker

    def at(self, listener: str, **configs: Any) -> Configs:
        """Configs of a client at a listener, without security."""
        host, port = self.broker.address(listener)
        named = {name.replace("__", "."): value for name, value in configs.items()}
        return {"bootstrap.servers": f"{host}:{port}"} | named

    def trusting(self, authority: str = "ca.pem") -> Configs:
        """Configs of a client that trusts an authority."""
        path = self.broker.certificates / authority
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}

    def holding(self, certificate: str) -> Configs:
        """Configs of a client with a certificate."""
        path = self.broker.certificates / f"{certificate}.pem"
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}

    def sasl(self, mechanism: str = "PLAIN", listener: str = "SASL", **configs: Any) -> Configs:
        """Configs of a client that logs in: as alice by PLAIN, as scram by SCRAM, as olga by OAUTHBEARER."""
        protocol = "SASL_SSL" if listener == "SASLTLS" else "SASL_PLAINTEXT"
        made = self.at(listener) | {"security.protocol": protocol, "sasl.mechanism": mechanism}
        if protocol == "SASL_SSL":
            made |= self.trusting()
        if mechanism == "OAUTHBEARER":
            module = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
            made["sasl.jaas.config"] = f'{module} required unsecuredLoginStringClaim_sub="olga";'
        else:
            user = "scram" if mechanism.startswith("SCRAM") else "alice"
            made |= {"sasl_username": user, "sasl_password": f"{user}-secret"}
        return made | {name.replace("__", "."): value for name, value in configs.items()}


@pytest.fixture
def logins(secured: Secured) -> Logins:
    return Logins(secured)


def fresh(prefix: str = "t") -> str:
    """A name that nothing else has."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def round_trip(configs: Configs) -> list[bytes | None]:
    """Create a topic, produce to it and read it in a group, with blocking clients; returns the values."""
    topic = fresh()
    with Admin(configs) as admin, Producer(configs) as producer:
        admin.create_topics([NewTopic(topic, 1, 1)]).check()
        producer.produce_many(topic, ["a", "b", "c"])
        assert producer.flush(30) == 0
    with Consumer(configs, group_id=fresh("g"), auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        values: list[bytes | None] = []
        while len(values) < 3:
            values += [record.value for record in consumer.consume(3, timeout=30)]
    return values


def asyncio_round_trip(configs: Configs) -> list[bytes | None]:
    """As `round_trip`, with asyncio clients."""

    async def main() -> list[bytes | None]:
        topic = fresh()
        async with aio.Admin(configs) as admin, aio.Producer(configs) as producer:
            (await admin.create_topics([NewTopic(topic, 1, 1)])).check()
            for value in ("a", "b", "c"):
                await producer.produce(topic, value)
            await producer.flush()
        async with aio.Consumer(configs, group_id=fresh("g"), auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic])
            values: list[bytes | None] = []
            while len(values) < 3:
                values += [record.value for record in await consumer.consume(3, timeout=30)]
        return values

    return asyncio.run(main())


def refusal(configs: Configs) -> KafkaError:
    """Error of the first call of a client."""
    with Admin(configs) as admin, pytest.raises(KafkaError) as caught:
        admin.list_topics()
    assert "\n" not in str(caught.value)
    return caught.value
