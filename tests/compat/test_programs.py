"""One program for each behaviour, run with confluent-kafka and with Ottla's module: what they return must be equal."""

import importlib
import pickle
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ottla.testing import Kafka

from .libraries import Program, compare, raised

PARTITIONERS = ("consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random")


def shown(message: Any) -> tuple[Any, ...]:
    """Return the fields of a message."""
    kind, error = message.timestamp()[0], message.error()
    fields = message.topic(), message.partition(), message.offset(), message.key(), message.value()
    return *fields, message.headers(), kind, str(error), message.leader_epoch(), len(message)


def read(consumer: Any, count: int) -> list[Any]:
    """Return messages until there are `count`, for 15 s."""
    messages: list[Any] = []
    deadline = time.monotonic() + 15
    while len(messages) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            messages.append(message)
    return messages


def reader(library: Any, servers: str, topic: str, **options: Any) -> Any:
    """Return a consumer of a group of its own."""
    config = {
        "bootstrap.servers": servers,
        "group.id": f"{topic}-{library.__name__}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    return library.Consumer({**config, **{name.replace("_", "."): value for name, value in options.items()}})


def fill(library: Any, servers: str, topic: str) -> None:
    """Produce three records to each of two partitions."""
    with library.Producer({"bootstrap.servers": servers}) as producer:
        for number in range(6):
            producer.produce(topic, f"v{number}", partition=number % 2, headers=[("n", b"%d" % number)])


def delivery_reports(library: Any, servers: str, topic: str) -> list[Any]:
    producer = library.Producer({"bootstrap.servers": servers})
    reports: list[Any] = []

    def report(error: Any, message: Any) -> None:
        reports.append((error, *shown(message), message.latency() is not None))

    def raises(error: Any, message: Any) -> None:
        raise ValueError("of the callback")

    producer.produce(topic, "v", "k", 1, on_delivery=report, headers=[("a", b"1"), ("b", None)], timestamp=12345)
    result: list[Any] = [len(producer), bool(producer), producer.flush(10), len(producer)]
    producer.produce(topic, None, b"k", 2, callback=report)
    producer.produce(topic, b"", "", 2, callback=report)
    result += [producer.flush(), reports]
    producer.produce(topic, "x", on_delivery=raises)
    result.append(raised(library, lambda: producer.flush(10)))
    result += [len(producer), producer.close(), producer.close(), len(producer)]
    for call in (lambda: producer.produce(topic), producer.flush, lambda: producer.poll(0), producer.begin_transaction):
        result.append(raised(library, call))
    return result


def refused_records(library: Any, servers: str, topic: str) -> list[Any]:
    producer = library.Producer({"bootstrap.servers": servers})
    producer.produce(topic, "known from here on")
    producer.flush()
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((1,), {}),
        ((topic, 5), {}),
        ((topic, "a", 5), {}),
        ((topic, "a", "b", "c"), {}),
        ((topic, "a"), {"timestamp": "x"}),
        ((topic, "a"), {"headers": "x"}),
        ((topic, "a"), {"headers": [1]}),
        ((topic, "a"), {"headers": [("a", 1)]}),
        ((topic, "a"), {"headers": {"a": b"b"}}),
        ((topic, b"x" * 2_000_000), {}),
        ((topic, "a", "b", 99), {}),
        ((topic, "a", "b", -5), {}),
        ((topic, bytearray(b"x")), {}),
    ]
    result: list[Any] = [raised(library, partial(producer.produce, *args, **named)) for args, named in calls]
    result += [raised(library, producer.init_transactions), raised(library, producer.begin_transaction)]
    result.append(producer.flush(10))
    producer.close()
    return result


def full_queue(library: Any, servers: str, topic: str) -> list[Any]:
    producer = library.Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 3, "linger.ms": 2000})
    result: list[Any] = [raised(library, lambda: producer.produce(topic, "x")) for _ in range(5)]
    result += [len(producer), producer.flush(10), raised(library, lambda: producer.produce(topic, "x"))]
    producer.close()
    return result


def note(partitions: dict[int, int], index: int, error: Any, message: Any) -> None:
    """Note the partition of a delivered record."""
    assert error is None
    partitions[index] = message.partition()


def partitions_of_keys(library: Any, servers: str, topic: str) -> list[Any]:
    keys = [b"" if number % 50 == 0 else random.Random(number).randbytes(number % 9) for number in range(1000)]
    result: list[Any] = []
    for name in (None, *PARTITIONERS):
        config = {"bootstrap.servers": servers, **({} if name is None else {"partitioner": name})}
        producer = library.Producer(config)
        partitions: dict[int, int] = {}
        for index, key in enumerate(keys):
            while True:
                try:
                    producer.produce(topic, b"", key, on_delivery=partial(note, partitions, index))
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()
        is_random = name in (None, "consistent_random")  # an empty key is no key
        result.append([partitions[index] for index, key in enumerate(keys) if key or not is_random])
        producer.close()
    hashes = (library.murmur2, library.consistent, library.fnv1a)
    result += [[function(key, 13) for key in keys] for function in hashes]
    return result


def transactions(library: Any, servers: str, topic: str) -> list[Any]:
    name = f"{topic}-{library.__name__}"
    # What is aborted must not be sent before, however slow the machine is.
    producer = library.Producer({"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 2000})
    reports: list[Any] = []

    def report(error: Any, _: Any) -> None:
        reports.append(str(error))

    result: list[Any] = [raised(library, call) for call in (producer.begin_transaction, producer.commit_transaction)]
    result.append(raised(library, lambda: producer.produce(topic, "outside")))
    result += [raised(library, lambda: producer.init_transactions(20)), raised(library, producer.init_transactions)]
    result.append(raised(library, lambda: producer.produce(topic, "outside")))
    for end in (producer.commit_transaction, producer.abort_transaction):
        result += [raised(library, end), raised(library, producer.begin_transaction)]
        result.append(raised(library, producer.begin_transaction))
        producer.produce(topic, end.__name__, partition=0, on_delivery=report)
        if end.__name__.startswith("commit"):
            producer.flush()
        result.append(raised(library, end))
    producer.poll(0.5)
    result.append(reports)
    other = library.Producer({"bootstrap.servers": servers, "transactional.id": name})
    other.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, "fenced", on_delivery=report)
    with pytest.raises(library.KafkaException) as caught:
        producer.commit_transaction()
    error = caught.value.args[0]
    result += [error.code(), error.name(), error.fatal(), error.retriable(), error.txn_requires_abort()]
    with reader(library, servers, topic, enable_partition_eof=True) as consumer:
        consumer.assign([library.TopicPartition(topic, 0)])
        result.append([message.value() for message in read(consumer, 2) if message.error() is None])
    return result


def offsets_in_transactions(library: Any, servers: str, topic: str) -> list[Any]:
    fill(library, servers, topic)
    producer = library.Producer({"bootstrap.servers": servers, "transactional.id": f"o-{topic}-{library.__name__}"})
    producer.init_transactions()
    consumer = reader(library, servers, topic)
    consumer.subscribe([topic])
    first = read(consumer, 6)
    producer.begin_transaction()
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()
    partitions = [library.TopicPartition(topic, number) for number in range(3)]
    committed = [str(partition) for partition in consumer.committed(partitions, timeout=10)]
    consumer.close()
    return [len(first), committed, type(consumer).__name__]


def group_member(library: Any, servers: str, topic: str) -> list[Any]:
    fill(library, servers, topic)
    events: list[Any] = []

    def listener(kind: str) -> Callable[[Any, list[Any]], None]:
        return lambda _, partitions: events.append((kind, [str(partition) for partition in partitions]))

    commits: list[Any] = []
    consumer = library.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"{topic}-{library.__name__}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "on_commit": lambda error, partitions: commits.append(
                (str(error), [str(partition) for partition in partitions])
            ),
        }
    )
    result: list[Any] = [consumer.poll(0), consumer.assignment(), consumer.memberid()]
    consumer.subscribe([topic], on_assign=listener("assign"), on_revoke=listener("revoke"), on_lost=listener("lost"))
    messages = read(consumer, 6 + 4)
    result.append(sorted(shown(message) for message in messages if message.error() is None))
    result.append(sorted((m.partition(), m.offset(), m.error().name()) for m in messages if m.error() is not None))
    result += [
        [str(partition) for partition in consumer.assignment()],
        [str(partition) for partition in consumer.position(consumer.assignment())],
    ]
    result.append([str(partition) for partition in consumer.commit(asynchronous=False)])
    result.append(raised(library, lambda: consumer.commit(asynchronous=False)))
    partitions = [library.TopicPartition(topic, number) for number in range(4)]
    result.append([str(partition) for partition in consumer.committed(partitions, timeout=10)])
    consumer.commit(offsets=[library.TopicPartition(topic, 0, 1, "metadata")])
    deadline = time.monotonic() + 5
    while not commits and time.monotonic() < deadline:
        consumer.poll(0.1)
    result += [commits, consumer.committed(partitions[:1], timeout=10)[0].metadata]
    result.append(raised(library, lambda: consumer.incremental_assign(partitions[:1])))
    consumer.close()
    consumer.close()
    result.append(events)
    for call in (lambda: consumer.poll(0), consumer.assignment, consumer.commit, lambda: consumer.seek(partitions[0])):
        result.append(raised(library, call))
    return result


def assigned_positions(library: Any, servers: str, topic: str) -> list[Any]:
    fill(library, servers, topic)
    part = library.TopicPartition
    consumer = reader(library, servers, topic)
    result: list[Any] = [
        raised(library, call)
        for call in (
            lambda: consumer.assign(5),
            lambda: consumer.assign([5]),
            lambda: consumer.subscribe("t"),
            lambda: consumer.subscribe([topic], on_assign=5),
            lambda: consumer.seek(part(topic, 0, 1)),
            lambda: consumer.pause([part(topic, 0)]),
            lambda: consumer.store_offsets(),
            lambda: consumer.store_offsets(offsets=[part(topic, 0, 1)]),
            lambda: consumer.commit(asynchronous=False),
            lambda: consumer.commit(message=5),
            lambda: consumer.consume(-1),
            lambda: consumer.consume(2_000_000, 0.1),
            lambda: consumer.get_watermark_offsets(part(topic, 0), timeout=10),
            lambda: consumer.get_watermark_offsets(part(topic, 0), cached=True),
            lambda: consumer.get_watermark_offsets(part(topic, 9), timeout=10),
        )
    ]
    offsets = consumer.offsets_for_times([part(topic, 0, 0), part(topic, 1, 2**42)], timeout=10)
    result.append([str(partition) for partition in offsets])
    for offset in (2, library.OFFSET_BEGINNING, library.OFFSET_STORED, library.OFFSET_INVALID, -2001):
        consumer.assign([part(topic, 0, offset)])
        result.append([[str(partition) for partition in consumer.assignment()], shown(read(consumer, 1)[0])])
    consumer.seek(part(topic, 0, 1))
    result += [shown(message) for message in read(consumer, 2)]
    consumer.pause([part(topic, 0)])
    consumer.seek(part(topic, 0, 0))
    result.append(consumer.poll(0.5))
    consumer.resume([part(topic, 0)])
    result.append([shown(message) for message in consumer.consume(3, 10)])
    result.append(raised(library, lambda: consumer.seek(part(topic, 1, 0))))
    message = library.Message(topic, 0, 2)
    result.append([str(partition) for partition in consumer.commit(message=message, asynchronous=False)])
    consumer.unassign()
    result.append(consumer.assignment())
    consumer.close()
    return result


def stored_offsets(library: Any, servers: str, topic: str) -> list[Any]:
    fill(library, servers, topic)
    part = library.TopicPartition
    options = {"enable_auto_offset_store": False, "enable_auto_commit": True}
    consumer = reader(library, servers, topic, **options)
    consumer.assign([part(topic, 0), part(topic, 1)])
    messages = read(consumer, 6)
    chosen = next(message for message in messages if message.partition() == 1 and message.offset() == 1)
    result: list[Any] = [raised(library, lambda: consumer.store_offsets(chosen))]
    result.append(raised(library, lambda: consumer.store_offsets(offsets=[part(topic, 3, 1)])))
    result.append(sorted(str(partition) for partition in consumer.commit(asynchronous=False)))
    consumer.store_offsets(offsets=[part(topic, 0, 1)])
    consumer.close()
    with reader(library, servers, topic) as other:
        result.append([str(partition) for partition in other.committed([part(topic, 0), part(topic, 1)], timeout=10)])
    return result


def positions_beyond_markers(library: Any, servers: str, topic: str) -> list[Any]:
    """A marker of a transaction is passed like a record, and `seek` leaves no position."""
    producer = library.Producer({"bootstrap.servers": servers, "transactional.id": f"m-{topic}-{library.__name__}"})
    producer.init_transactions()
    for _ in range(2):
        producer.begin_transaction()
        producer.produce(topic, "v", partition=0)
        producer.commit_transaction()
    partition = library.TopicPartition(topic, 0, 0)

    def position() -> int:
        offset: int = consumer.position([partition])[0].offset
        return offset

    with reader(library, servers, topic) as consumer:
        consumer.assign([partition])
        result: list[Any] = [position(), shown(read(consumer, 1)[0]), position(), shown(read(consumer, 1)[0])]
        result += [consumer.poll(1), position()]
        result.append([str(committed) for committed in consumer.commit(asynchronous=False)])
        consumer.seek(library.TopicPartition(topic, 0, 3))  # the last marker
        result += [position(), consumer.poll(1), position()]
        consumer.seek(library.TopicPartition(topic, 0, 4))
        return [*result, position(), consumer.poll(1), position()]


def errors_as_messages(library: Any, servers: str, topic: str) -> list[Any]:
    fill(library, servers, topic)
    result: list[Any] = []
    with reader(library, servers, topic, auto_offset_reset="error") as consumer:
        consumer.assign([library.TopicPartition(topic, 0)])
        message = read(consumer, 1)[0]
        result.append((message.topic(), str(message.error()), message.value(), message.offset()))
    with reader(library, servers, topic) as consumer:
        consumer.subscribe([f"{topic}-missing"])
        message = read(consumer, 1)[0]
        name = f"{topic}-missing"
        result.append(
            (message.topic() == name, message.partition(), message.error().name(), name in str(message.error()))
        )
    return result


def metadata(library: Any, servers: str, topic: str) -> list[Any]:
    result: list[Any] = []
    with library.Producer({"bootstrap.servers": servers}) as producer:
        cluster = producer.list_topics(topic, timeout=10)
        result += [cluster.topics, repr(cluster.brokers[1]), type(producer.cluster_id(10))]
        result += [vars(part) for part in cluster.topics[topic].partitions.values()]
        result.append(topic in producer.list_topics(timeout=10).topics)
    with reader(library, servers, topic) as consumer:
        result.append(repr(consumer.list_topics(f"{topic}-none", timeout=10).topics))
    with importlib.import_module(f"{library.__name__}.admin").AdminClient({"bootstrap.servers": servers}) as admin:
        result.append(topic in admin.list_topics(timeout=10).topics)
    result.append(raised(library, lambda: admin.poll(0)))
    for client in (producer, consumer, admin):
        calls = (client.list_topics, client.cluster_id, partial(client.set_sasl_credentials, "user", "password"))
        result += [raised(library, call) for call in calls]
    return [str(element) for element in result]


def unreachable(library: Any, servers: str, topic: str) -> list[Any]:
    """Texts of errors without a broker."""
    configs = {"bootstrap.servers": "127.0.0.1:1", "group.id": topic}
    with library.Producer({"bootstrap.servers": "127.0.0.1:1"}) as producer, library.Consumer(configs) as consumer:
        calls = [partial(client.list_topics, timeout=0.2) for client in (producer, consumer)]
        calls += [partial(call, timeout=0.2) for call in (producer.cluster_id, consumer.cluster_id)]
        return [raised(library, call) for call in calls]


def errors_without_a_broker(library: Any, servers: str, topic: str) -> list[Any]:
    """error_cb gets what fails, and that no broker is left; both libraries name the address."""
    result: list[Any] = []
    for kind in ("Producer", "Consumer"):
        errors: list[Any] = []
        configs = {"bootstrap.servers": "127.0.0.1:1", "group.id": topic, "error_cb": errors.append}
        with getattr(library, kind)(configs if kind == "Consumer" else {**configs, "group.id": None}) as client:
            if kind == "Consumer":
                client.subscribe([topic])
            else:
                client.produce(topic, "v")
            deadline = time.monotonic() + 10
            while len({error.name() for error in errors}) < 2 and time.monotonic() < deadline:
                client.poll(0.1)
            if kind == "Producer":
                client.purge()
        result.append(sorted({(error.name(), error.fatal()) for error in errors}))
        result.append(all("127.0.0.1:1" in str(error) for error in errors if error.name() == "_TRANSPORT"))
        result += sorted({error.str() for error in errors if error.name() == "_ALL_BROKERS_DOWN"})
    return result


def values(library: Any, servers: str, topic: str) -> list[Any]:
    part, error, message = library.TopicPartition, library.KafkaError, library.Message
    pairs = [part("a", 1), part("a", 1, 9), part("a", 2), part("b", 0), part("a")]
    result: list[Any] = [str(partition) for partition in (*pairs, part("a", 1, 5, "m", 3), part("a", 0, -2))]
    result += [[first == second for first in pairs] for second in pairs]
    result += [[first < second for first in pairs] for second in pairs]
    result += [[first >= second for first in pairs] for second in pairs]
    result += [hash(pairs[0]) == hash(pairs[1]), part("a").error, part("a").metadata, part("a").leader_epoch]
    for code in (-191, -185, -150, -144, 0, 1, 3, 7, 47, 9999, -9999):
        one = error(code)
        result.append((one.code(), one.name(), one.str(), str(one), repr(one), one.retriable(), one.fatal(), hash(one)))
    one = error(3, "reason", fatal=True, retriable=True, txn_requires_abort=True)
    result += [
        repr(one),
        one.retriable(),
        one.txn_requires_abort(),
        one == 3,
        one == error(3),
        one < 4,
        one > error(2),
        one != 3,
    ]
    result += [repr(pickle.loads(pickle.dumps(one))), str(library.KafkaException(one)), bool(error(0))]
    result += [error._PARTITION_EOF, one._TIMED_OUT, error.UNKNOWN_TOPIC_OR_PART]
    empty = message()
    full = message("t", 1, 5, b"k", b"v", [("a", b"b")], None, (1, 99), 0.5, 3, 2)
    result += [shown(empty), shown(full), full.latency(), full.delivery_count(), bool(empty), bool(full)]
    result += [empty == message(), shown(pickle.loads(pickle.dumps(full)))]
    full.set_key(3)
    full.set_value([1])
    full.set_headers([("a", "b")])
    full.set_topic("u")
    result.append(shown(full))
    result += [str(library.Uuid(1, 2)), library.version().rpartition(".")[0], library.libversion()[0].count(".")]
    result.append(str(library.ThrottleEvent("b", 1, 0.5)))
    names = [name for name in dir(library) if name.startswith(("OFFSET", "TIMESTAMP"))]
    return [*result, [(name, getattr(library, name)) for name in names]]


class Builder:
    """Builder of a serializer, or a deserializer, that takes a config for itself."""

    def __init__(self, serde: Any) -> None:
        self.serde = serde

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Any, dict[str, Any]]:
        """Return the serializer and the other configs."""
        assert is_key == ("for.keys" in conf)
        conf.pop("for.keys", None)
        return self.serde, conf


def serialized_twice(library: Any, config: dict[str, Any], topic: str, module: Any) -> list[Any]:
    """Return what a builder makes, and the error of a serializer and a builder."""
    number = module.IntegerSerializer()
    built = {**config, "for.keys": True, "key.serializer.builder": Builder(number)}
    both = {**config, "key.serializer.builder": Builder(number), "key.serializer": number}
    with library.SerializingProducer(built) as producer:
        producer.produce(topic, key=5, value="v", partition=1)
    return [raised(library, partial(library.SerializingProducer, both))]


def unread(library: Any, config: dict[str, Any], topic: str, module: Any) -> list[Any]:
    """Return the error of a message, the key and the value of which cannot be read."""
    text, number = module.StringDeserializer(), module.IntegerDeserializer()
    result: list[Any] = []
    for key, value in ((text, number), (number, number)):
        names = {"key.deserializer": key, "value.deserializer.builder": Builder(value)}
        own = {**config, "group.id": topic, "auto.offset.reset": "earliest", **names}
        with library.DeserializingConsumer(own) as consumer:
            consumer.assign([library.TopicPartition(topic, 1, 0)])
            with pytest.raises(library.KafkaException) as caught:
                read(consumer, 1)
            message = caught.value.kafka_message
            result.append((type(caught.value).__name__, message.key(), message.value()))
    with library.Producer(config) as producer:
        producer.produce(topic, "v", "key of no number", partition=2)
    with library.DeserializingConsumer(own) as consumer:
        consumer.assign([library.TopicPartition(topic, 2, 0)])
        with pytest.raises(library.KafkaException) as caught:
            read(consumer, 1)
    return [*result, type(caught.value).__name__]


def serializers(library: Any, servers: str, topic: str) -> list[Any]:
    module = importlib.import_module(f"{library.__name__}.serialization")
    config = {"bootstrap.servers": servers}
    text, number = module.StringSerializer("utf_8"), module.IntegerSerializer()
    producer = library.SerializingProducer({**config, "key.serializer": number, "value.serializer": text})
    producer.produce(topic, key=7, value="ä", partition=0)
    result: list[Any] = [producer.flush(10)]
    for key, value in (("x", "y"), (1, 5), (2**40, "z")):
        with pytest.raises(library.KafkaException) as caught:
            producer.produce(topic, key=key, value=value)
        error = caught.value
        result.append((type(error).__name__, error.name, type(error.exception).__name__))
    producer.close()
    with library.DeserializingConsumer(
        {
            **config,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "key.deserializer": module.IntegerDeserializer(),
            "value.deserializer": module.StringDeserializer(),
        }
    ) as consumer:
        consumer.assign([library.TopicPartition(topic, 0)])
        message = read(consumer, 1)[0]
        result += [
            message.key(),
            message.value(),
            raised(library, lambda: consumer.seek(library.TopicPartition(topic, 0))),
        ]
    result += [serialized_twice(library, config, topic, module), unread(library, config, topic, module)]
    doubles = (
        module.DoubleSerializer()(1.5),
        module.DoubleDeserializer()(b"\x3f\xf8" + bytes(6)),
        module.DoubleSerializer()(None),
    )
    return [*result, doubles]


PROGRAMS: list[Program] = [
    delivery_reports,
    refused_records,
    full_queue,
    partitions_of_keys,
    transactions,
    offsets_in_transactions,
    group_member,
    assigned_positions,
    stored_offsets,
    positions_beyond_markers,
    errors_as_messages,
    metadata,
    unreachable,
    errors_without_a_broker,
    values,
    serializers,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_shows_the_same_with_both_libraries(program: Program, kafka: Kafka) -> None:
    compare(program, kafka)
