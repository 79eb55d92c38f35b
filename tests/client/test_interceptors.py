"""Interceptors of producers and consumers, blocking and asyncio, and the page's traces."""

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ottla
from ottla import Consumer, Producer, ShareConsumer, TopicPartition
from ottla.client.errors import InvalidClientConfig, KafkaError, RecordTooLarge
from ottla.client.interceptors import ProducerRecord

from .conftest import Produce, fresh


class Seen:
    """An interceptor that adds a header, leaves records out, and keeps what it sees."""

    def __init__(self, leaves_out: bytes = b"") -> None:
        self.leaves_out = leaves_out
        self.calls: list[tuple[Any, ...]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.calls.append(("send", record.value))
        return record._replace(headers=[*record.headers, ("seen", b"1")])

    def on_acknowledgement(self, record: ProducerRecord, delivered: Any, error: Any) -> None:
        self.calls.append(("acknowledged", record.value, None if delivered is None else delivered.offset, type(error)))

    def on_consume(self, records: list[Any]) -> list[Any]:
        self.calls.append(("consume", *(record.value for record in records)))
        return [record for record in records if record.value != self.leaves_out]

    def on_commit(self, offsets: Any) -> None:
        self.calls.append(("commit", *((part.topic, entry.offset) for part, entry in offsets.items())))

    def close(self) -> None:
        self.calls.append(("close",))


class Broken:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("no")

    def on_consume(self, records: list[Any]) -> str:
        return "no list"


MADE: list[dict[str, Any]] = []


class Counted:
    def configure(self, configs: dict[str, Any]) -> None:
        MADE.append(configs)

    def on_send(self, record: ProducerRecord) -> None:
        """Leave the record as it is."""


class Refusing(Counted):
    def configure(self, configs: dict[str, Any]) -> None:
        raise ValueError("not here")


def test_interceptors_of_a_producer(bootstrap_servers: str, caplog: pytest.LogCaptureFixture) -> None:
    topic, seen = fresh("intercepted"), Seen()
    name = f"{__name__}:Counted"
    with Producer(bootstrap_servers=bootstrap_servers, interceptor_classes=[Broken, seen, name]) as producer:
        producer.produce(topic, "a")
        assert producer.send(topic, "b", headers={"own": b"2"}).result().offset == 1
        producer.produce_many(topic, ["c"])
        with pytest.raises(RecordTooLarge):
            producer.produce(topic, bytes(2 << 20))
        producer.flush()
    sent = [call for call in seen.calls if call[0] == "send"]
    assert [call[1] for call in sent[:3]] == ["a", "b", "c"]
    outcomes = [call for call in seen.calls if call[0] == "acknowledged"]
    assert sorted(call[1:] for call in outcomes if call[2] is not None) == [
        (value, offset, type(None)) for offset, value in enumerate("abc")
    ]
    assert [call[2:] for call in outcomes if call[2] is None] == [(None, RecordTooLarge)]
    assert seen.calls[-1] == ("close",)
    assert MADE.pop()["bootstrap.servers"]
    assert [record.message for record in caplog.records if "Broken" in record.message] == ["Broken.on_send raised"] * 4
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        headers = [record.headers for record in consumer.consume(3, 10)]
    assert headers == [[("seen", b"1")], [("own", b"2"), ("seen", b"1")], [("seen", b"1")]]


def test_interceptors_of_a_consumer(bootstrap_servers: str, produce: Produce) -> None:
    topic, seen = fresh("intercepted"), Seen(leaves_out=b"v1")
    produce(topic, 4)
    group = fresh("readers")
    configs = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Consumer(
        {"bootstrap.servers": bootstrap_servers, "interceptor.classes": [Broken(), seen], **configs}
    ) as consumer:
        consumer.subscribe([topic])
        first, second = consumer.poll(10), consumer.poll(10)
        assert first is not None
        assert second is not None
        assert (first.value, second.value) == (b"v0", b"v2")
        consumer.commit()
        assert [record.value for record in consumer.consume(5, 10)] == [b"v3"]
    commits = [call for call in seen.calls if call[0] == "commit"]
    assert commits == [("commit", (topic, 3))]
    assert [call for call in seen.calls if call[0] == "consume"] == [
        ("consume", b"v%d" % number) for number in range(4)
    ]
    assert seen.calls.count(("close",)) == 1


def test_interceptors_of_asyncio_clients(bootstrap_servers: str) -> None:
    topic, seen, other = fresh("intercepted"), Seen(), Seen(leaves_out=b"a")

    async def run() -> tuple[Any, list[Any]]:
        configs = {"bootstrap.servers": bootstrap_servers, "interceptor.classes": seen}
        async with ottla.aio.Producer(configs) as producer:
            await producer.produce(topic, "a")
            await (await producer.send(topic, "b"))
            await (await producer.send(topic, "c"))
            with pytest.raises(RecordTooLarge):
                await producer.produce(topic, bytes(2 << 20))
        async with ottla.aio.Consumer(
            {**configs, "interceptor.classes": [other], "auto.offset.reset": "earliest"}
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            return await consumer.poll(10), await consumer.consume(5, 10)

    first, rest = asyncio.run(run())
    assert first.value == b"b"
    assert [(record.value, record.headers) for record in rest] == [(b"c", [("seen", b"1")])]
    assert ("acknowledged", "c", 2, type(None)) in seen.calls
    assert seen.calls[-1] == other.calls[-1] == ("close",)


def test_interceptors_are_called_for_a_cancelled_call() -> None:
    """It waits for a broker that does not answer."""
    seen = Seen()

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            async with ottla.aio.Producer({"bootstrap.servers": address, "interceptor.classes": seen}) as producer:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(producer.produce("t", "a"), 0.2)

    asyncio.run(run())
    assert [call for call in seen.calls if call[0] == "acknowledged"] == [("acknowledged", "a", None, KafkaError)]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("com.example.Interceptor", "a Java class cannot run here"),
        ("json:nothing", "json has no nothing"),
        (object(), "has none of the methods on_send"),
        (Seen().on_send, "has none of the methods on_send"),
        (Refusing, "Refusing raised ValueError: not here"),
    ],
)
def test_wrong_interceptors_are_refused(bootstrap_servers: str, named: Any, message: str) -> None:
    with pytest.raises(InvalidClientConfig, match=message):
        Producer(bootstrap_servers=bootstrap_servers, interceptor_classes=named)


def test_share_consumers_have_no_interceptors(bootstrap_servers: str) -> None:
    with pytest.raises(InvalidClientConfig, match="a share consumer has none"):
        ShareConsumer(bootstrap_servers=bootstrap_servers, group_id="g", interceptor_classes=Seen())


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[InMemorySpanExporter]:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n# tracing.py\n(.*?)```", page, re.DOTALL)
    (tmp_path / "tracing.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def test_the_traces_of_the_page(bootstrap_servers: str, spans: InMemorySpanExporter) -> None:
    topic = fresh("traced")
    with Producer(bootstrap_servers=bootstrap_servers, interceptor_classes="tracing:Tracing") as producer:
        producer.produce(topic, "a")
        producer.flush()
    reading = {"interceptor_classes": "tracing:Tracing", "auto_offset_reset": "earliest"}
    with Consumer(bootstrap_servers=bootstrap_servers, **reading) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.poll(10) is not None
    sent, received = spans.get_finished_spans()
    assert (sent.name, received.name) == (f"send {topic}", f"receive {topic}")
    assert received.parent is not None
    assert received.parent.span_id == sent.context.span_id
    assert received.context.trace_id == sent.context.trace_id
