"""Client configs: Kafka's names, checked."""

import pytest

from ottla.client.config import _LIBRDKAFKA, CONFIGS, ClientConfig, addresses
from ottla.client.errors import InvalidClientConfig

SERVERS = {"bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1, b:2,", (("a", 1), ("b", 2))),
        ("localhost", (("localhost", 9092),)),
        ("[::1]:9093", (("::1", 9093),)),
        ("[::1]", (("::1", 9092),)),
        ("::1", (("::1", 9092),)),
    ],
)
def test_addresses(text: str, found: tuple[tuple[str, int], ...]) -> None:
    assert addresses(text) == found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({"bootstrap.servers": "h:x"}, "'h:x' is not host:port"),
        ({**SERVERS, "isolation.levle": "x"}, "did you mean kafka.isolation.level?"),
        ({**SERVERS, "queue.buffering.max.ms": "5"}, "is a name of librdkafka; Kafka's is kafka.linger.ms"),
        ({**SERVERS, "metadata.broker.list": "h:1"}, "Kafka's is kafka.bootstrap.servers"),
        ({**SERVERS, "isolation.level": "x"}, "must be one of read_uncommitted, read_committed"),
        ({**SERVERS, "fetch.max.wait.ms": "-1"}, "must be from 0"),
        ({**SERVERS, "security.protocol": "SASL_SSL"}, "SASL_SSL is not supported by this client yet"),
        ({**SERVERS, "acks": "1", "enable.idempotence": "true"}, "needs kafka.acks=all"),
        ({**SERVERS, "enable.idempotence": "true", "max.in.flight.requests.per.connection": "6"}, "at most 5"),
    ],
)
def test_what_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidClientConfig, match=said.replace("?", r"\?")):
        ClientConfig(given, prefix="kafka.")


def test_suggestions_for_names_of_librdkafka_are_names_of_this_client() -> None:
    for name, suggested in _LIBRDKAFKA.items():
        assert name not in CONFIGS
        assert all(part.split()[0] in CONFIGS for part in suggested.replace(" or ", ", ").split(", "))


def test_conflicting_configs_switch_idempotence_off_unless_asked_for() -> None:
    assert ClientConfig(SERVERS)["enable.idempotence"]
    assert not ClientConfig({**SERVERS, "acks": "1"})["enable.idempotence"]


def test_names_of_kafkas_clients_without_meaning_here_are_accepted() -> None:
    assert ClientConfig({**SERVERS, "key.serializer": "5"}) == ClientConfig(SERVERS)


def test_equal_configs_share_connections() -> None:
    assert (
        len({ClientConfig(SERVERS), ClientConfig({**SERVERS, "acks": "all"}), ClientConfig({**SERVERS, "acks": "0"})})
        == 2
    )
