"""set_sasl_credentials, run with both libraries against a broker with SCRAM: what programs show must be equal."""

import importlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import ottla
from ottla import ScramMechanism, UserScramCredentialUpsertion
from ottla.testing import Kafka, Security

from .libraries import Program, compare, raised

USER, PASSWORD, NEW = "alice", "alice-secret", "alice-new"
SESSION_MS = 1500
DEADLINE_S = 20


def configs(servers: str, password: str, errors: list[str], **more: Any) -> dict[str, Any]:
    """Return the configs of a client; names of its errors go to `errors`, without repetitions."""

    def note(error: Any) -> None:
        if error.name() not in errors and error.name() != "_ALL_BROKERS_DOWN":
            errors.append(error.name())

    return {
        "bootstrap.servers": servers,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": password,
        "reconnect.backoff.max.ms": 500,
        "error_cb": note,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def reader_configs(library: Any, servers: str, topic: str, password: str, errors: list[str]) -> dict[str, Any]:
    """Return the configs of a consumer of a group of its own."""
    group = f"{topic}-{library.__name__}-{password}"
    return configs(servers, password, errors, group_id=group, auto_offset_reset="earliest")


def wait(condition: Callable[[], object], step: Callable[[], object]) -> None:
    """Repeat a step until a condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        step()


def corrected_producer(library: Any, servers: str, topic: str) -> list[Any]:
    """Records wait while the login is refused."""
    errors: list[str] = []
    reports: list[Any] = []
    producer = library.Producer(configs(servers, "wrong", errors))
    producer.produce(
        topic, "v", partition=0, on_delivery=lambda error, message: reports.append((error, message.offset()))
    )
    wait(lambda: errors, lambda: producer.poll(0.1))
    result: list[Any] = [list(errors), list(reports), len(producer)]
    result.append(producer.set_sasl_credentials(USER, PASSWORD))
    result += [producer.flush(DEADLINE_S), reports]
    calls = ((1, "x"), (None, "x"), ("x", b"y"), ("x",), ("", ""))
    result += [raised(library, partial(producer.set_sasl_credentials, *args)) for args in calls]
    producer.close()
    return [*result, raised(library, lambda: producer.set_sasl_credentials("x", "y"))]


def corrected_consumer(library: Any, servers: str, topic: str) -> list[Any]:
    """No message tells of a refused login, and the consumer goes on after it."""
    errors: list[str] = []
    messages: list[Any] = []
    with library.Producer(configs(servers, PASSWORD, [])) as producer:
        producer.produce(topic, "v", partition=0)
    consumer = library.Consumer(reader_configs(library, servers, topic, "wrong", errors))
    consumer.subscribe([topic])

    def poll() -> None:
        messages.extend(message.value() for message in [consumer.poll(0.1)] if message is not None)

    wait(lambda: errors, poll)
    result: list[Any] = [list(errors), list(messages), consumer.set_sasl_credentials(USER, PASSWORD)]
    wait(lambda: messages, poll)
    consumer.close()
    return [*result, messages, raised(library, lambda: consumer.set_sasl_credentials("x", "y"))]


def corrected_admin(library: Any, servers: str, topic: str) -> list[Any]:
    errors: list[str] = []
    admin = importlib.import_module(f"{library.__name__}.admin").AdminClient(configs(servers, "wrong", errors))
    result: list[Any] = [raised(library, lambda: admin.list_topics(timeout=0.5))]
    result.append(admin.set_sasl_credentials(USER, PASSWORD))
    return [*result, topic in admin.list_topics(timeout=DEADLINE_S).topics]


def changed_password(library: Any, servers: str, topic: str) -> list[Any]:
    """Clients log in again before their session ends; with the old password they cannot."""
    errors: list[str] = []
    messages: list[Any] = []
    reports: list[Any] = []
    producer = library.Producer(configs(servers, PASSWORD, errors))
    consumer = library.Consumer(reader_configs(library, servers, topic, PASSWORD, errors))
    consumer.subscribe([topic])

    def produce() -> None:
        producer.produce(
            topic, "v", partition=0, on_delivery=lambda error, message: reports.append((error, message.offset()))
        )

    def poll() -> None:
        producer.poll(0)
        messages.extend(message.value() for message in [consumer.poll(0.1)] if message is not None)

    produce()
    wait(lambda: messages, poll)
    set_password(servers, NEW)
    wait(lambda: errors, poll)
    produce()
    time.sleep(SESSION_MS / 1000)
    result: list[Any] = [list(errors), len(reports)]
    for client in (producer, consumer):
        client.set_sasl_credentials(USER, NEW)
    result.append(producer.flush(DEADLINE_S))
    wait(lambda: len(messages) == 2, poll)
    consumer.close()
    producer.close()
    set_password(servers, PASSWORD, known=NEW)
    return [*result, reports, messages]


def set_password(servers: str, password: str, known: str = PASSWORD) -> None:
    """Change the password of the user, who has logged in with the `known` one."""
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
    with ottla.Admin(bootstrap_servers=servers, sasl_username=USER, sasl_password=known, **login) as admin:
        credential = UserScramCredentialUpsertion(USER, ScramMechanism.SCRAM_SHA_256, password)
        admin.alter_user_scram_credentials([credential]).check()


PROGRAMS: list[Program] = [corrected_producer, corrected_consumer, corrected_admin, changed_password]


@pytest.fixture
def kafka_config() -> dict[str, object]:
    security = Security("SASL_PLAINTEXT", "SCRAM-SHA-256", user=USER, password=PASSWORD)
    return {"security": security, "connections.max.reauth.ms": SESSION_MS}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_new_credentials_show_the_same_with_both_libraries(program: Program, kafka: Kafka) -> None:
    compare(program, kafka)


def test_a_client_without_a_login_ignores_credentials(kafka_factory: Callable[..., Kafka]) -> None:
    def program(library: Any, servers: str, topic: str) -> list[Any]:
        with library.Producer({"bootstrap.servers": servers}) as producer:
            result = [producer.set_sasl_credentials(USER, PASSWORD)]
            producer.produce(topic, "v")
            return [*result, producer.flush(DEADLINE_S)]

    compare(program, kafka_factory({"security": None}))
