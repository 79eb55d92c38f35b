"""One program for each way to read a share group, run with both libraries: what they show must be equal."""

import importlib
import threading
import time
from functools import partial
from typing import Any

import pytest

from ottla.compat.librdkafka.properties import PROPERTIES
from ottla.testing import Kafka

from .libraries import Program, compare


def shown(message: Any) -> Any:
    """Return the fields of a message."""
    fields = message.topic(), message.partition(), message.offset(), message.key(), message.value()
    return *fields, str(message.error()), message.delivery_count()


def raised(call: Any) -> str:
    """Return the result of a call, or its error, without the ids of threads."""
    try:
        return str(call())
    except Exception as error:  # noqa: BLE001  (its class is shown)
        text = str(error).partition(" currentThread")[0]
        return f"{type(error).__name__}: {text}"


def member(library: Any, servers: str, topic: str, kind: Any = None, **options: Any) -> Any:
    """Return a share consumer of a group of its own, which begins with the first record."""
    name = f"{topic}-{library.__name__}"
    admin = importlib.import_module(f"{library.__name__}.admin")
    with admin.AdminClient({"bootstrap.servers": servers}) as client:
        entry = admin.ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=admin.AlterConfigOpType.SET
        )
        group = admin.ConfigResource("group", name, incremental_configs=[entry])
        for future in client.incremental_alter_configs([group]).values():
            future.result(10)
    with library.Producer({"bootstrap.servers": servers}) as producer:
        for number in range(6):
            producer.produce(topic, f"v{number}", "k", partition=0)
    configs = {name.replace("_", "."): value for name, value in options.items()}
    return (kind or library.ShareConsumer)({"bootstrap.servers": servers, "group.id": name, **configs})


def poll_messages(consumer: Any) -> Any:
    """Return the messages of the first poll that has some, within 15 s."""
    end = time.monotonic() + 15
    while time.monotonic() < end:
        messages = consumer.poll(0.2)
        if messages:
            return messages
    raise AssertionError("no message")


def implicit(library: Any, servers: str, topic: str) -> list[Any]:
    consumer = member(library, servers, topic)
    calls = [consumer.subscription, partial(consumer.poll, 0.1), partial(consumer.subscribe, topic)]
    calls += [partial(consumer.subscribe, [5]), partial(consumer.subscribe, []), partial(consumer.poll, "x")]
    result: list[Any] = [raised(call) for call in calls]
    consumer.subscribe([topic])
    result.append(consumer.subscription())
    messages = poll_messages(consumer)
    result += [[shown(message) for message in messages], len(messages), messages.count(), messages.is_empty()]
    result += [shown(messages[0]), [shown(message) for message in messages[1:3]], type(messages[:1]).__name__]
    result += [raised(call) for call in (partial(consumer.acknowledge, messages[0]), consumer.commit_sync)]
    result += [raised(call) for call in (consumer.commit_sync, consumer.commit_async, partial(consumer.poll, 0.2))]
    result.append(raised(partial(consumer.set_acknowledgement_commit_callback, 5)))
    consumer.unsubscribe()
    result += [consumer.subscription(), consumer.close(), consumer.close()]
    closed = [consumer.subscription, consumer.poll, consumer.unsubscribe, consumer.commit_sync, consumer.commit_async]
    closed += [partial(consumer.subscribe, ["a"]), partial(consumer.set_acknowledgement_commit_callback, None)]
    closed.append(partial(consumer.set_sasl_credentials, "user", "password"))
    return result + [raised(call) for call in [*closed, partial(consumer.acknowledge_offset, topic, 0, 0)]]


def explicit(library: Any, servers: str, topic: str) -> list[Any]:
    kind, calls = library.AcknowledgeType, []
    with member(library, servers, topic, share_acknowledgement_mode="explicit") as consumer:
        consumer.set_acknowledgement_commit_callback(lambda offsets, error: calls.append((str(offsets), error)))
        consumer.subscribe([topic])
        messages = poll_messages(consumer)
        result: list[Any] = [[shown(message) for message in messages]]
        for number, outcome in enumerate((kind.ACCEPT, kind.RELEASE, kind.REJECT)):
            result.append(consumer.acknowledge(messages[number], outcome))
        wrong = [
            (messages[0], kind.REJECT),
            (5,),
            (messages[0], 7),
            (messages[0], "x"),
            (library.Message(topic, 0, 99),),
        ]
        result += [raised(partial(consumer.acknowledge, *arguments)).partition("argument 1")[0] for arguments in wrong]
        offsets = [(topic, 0, 3), (topic, 0, 99), ("none", 0, 0), (topic, 0, 4, kind.RELEASE)]
        result += [raised(partial(consumer.acknowledge_offset, *arguments)) for arguments in offsets]
        result += [raised(partial(consumer.poll, 0.2)), consumer.acknowledge(messages[5])]
        result += [str(consumer.commit_sync(10)), list(calls), raised(partial(consumer.acknowledge, messages[0]))]
        again = poll_messages(consumer)
        result.append([shown(message) for message in again])
        for message in again:
            consumer.acknowledge(message)
        result.append(consumer.commit_async())
    return [*result, [str(enum_member) for enum_member in kind]]


def from_two_threads(library: Any, servers: str, topic: str) -> list[Any]:
    consumer = member(library, servers, topic)
    consumer.subscribe([topic])
    poll_messages(consumer)
    thread = threading.Thread(target=consumer.poll, args=(1.5,))
    thread.start()
    time.sleep(0.3)
    credentials = partial(consumer.set_sasl_credentials, "user", "password")
    calls = (partial(consumer.poll, 0), consumer.close, consumer.commit_async, credentials)
    result: list[Any] = [raised(call) for call in calls]
    thread.join()
    consumer.close()
    return result


def deserialized(library: Any, servers: str, topic: str) -> list[Any]:
    serialization = importlib.import_module(f"{library.__name__}.serialization")

    def value_of(data: bytes, context: Any) -> str:
        if data == b"v3":
            raise ValueError("v3")
        return f"{data.decode()} {context.field} {context.topic == topic}"

    configs = {"key.deserializer": serialization.StringDeserializer(), "value.deserializer": value_of}
    with member(library, servers, topic, library.DeserializingShareConsumer, **configs) as consumer:
        consumer.subscribe([topic])
        return [shown(message) for message in poll_messages(consumer)]


def configs(library: Any, servers: str, topic: str) -> list[Any]:
    del topic
    result: list[Any] = [
        raised(library.ShareConsumer),
        raised(lambda: library.ShareConsumer({"bootstrap.servers": "x"})),
    ]
    left_out = ("allow.auto.create.topics", "socket.max.fails", "https.ca.location")
    for name, row in PROPERTIES.items():
        if (
            row.role == "P"
            or row.kind in ("api", "flags")
            or row.effect == "refused"
            or "ssl." in name
            or name in left_out
        ):
            continue
        value = row.bounds.split(",")[0] if row.kind == "enum" else row.default
        own = {"bootstrap.servers": servers, "group.id": "g", name: "group" if value in ("-", "") else value}
        outcome = raised(lambda own=own: library.ShareConsumer(own).close())
        result.append((name, outcome if "share consumer" in outcome else ""))
    return [*result, raised(lambda: library.ShareConsumer({"group.id": "g", "on_commit": print}))]


def messages(library: Any, servers: str, topic: str) -> list[Any]:
    del servers, topic
    batch = library.Messages([library.Message("a"), library.Message("b")])
    copy = batch.records()
    copy.clear()
    texts = [message.topic() for message in (*batch, batch[1], batch[-1])]
    return [len(batch), texts, bool(library.Messages()), library.Messages().is_empty(), repr(library.Messages())]


@pytest.mark.parametrize(
    "program",
    [implicit, explicit, from_two_threads, deserialized, configs, messages],
    ids=lambda program: program.__name__,
)
def test_a_program_shows_the_same_with_both_libraries(program: Program, kafka: Kafka) -> None:
    compare(program, kafka)
