"""OpenTelemetry's instrumentation of confluent-kafka: spans of producers and consumers, of all clients and of one.

https://opentelemetry-python-contrib.readthedocs.io/en/latest/instrumentation/confluent_kafka/confluent_kafka.html
"""

import sys
from typing import Any

import confluent_kafka
from opentelemetry.instrumentation.confluent_kafka import (  # type: ignore[import-not-found]
    ConfluentKafkaInstrumentor,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

_WAIT_S = 30


def exchange(producer: Any, consumer: Any, topic: str) -> list[str]:
    """Produce and read three records, two by `poll` and one by `consume`; return the names of their headers."""
    delivered: list[int] = []
    for number in range(3):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, message: delivered.append(message.offset()))
    producer.flush(_WAIT_S)
    assert delivered == [0, 1, 2]
    consumer.subscribe([topic])
    messages = [consumer.poll(_WAIT_S), consumer.poll(_WAIT_S), *consumer.consume(1, _WAIT_S)]
    assert [message.value() for message in messages] == [b"0", b"1", b"2"]
    consumer.close()
    return [name for message in messages for name, _ in message.headers()]


def check(spans: InMemorySpanExporter, topic: str) -> None:
    """Check the spans of an exchange: a record's span links to the one with which it was produced."""
    finished = spans.get_finished_spans()
    sent = [span for span in finished if span.name == f"{topic} send"]
    processed = [span for span in finished if span.name == f"{topic} process"]
    assert len(sent) == len(processed) == 3, [span.name for span in finished]
    contexts = [span.get_span_context() for span in sent]
    links = [link.context.span_id for span in processed for link in span.links]
    assert links == [context.span_id for context in contexts if context is not None]
    spans.clear()


def main(bootstrap: str, topic: str) -> None:
    """Instrument all clients, then one producer and one consumer."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    reader = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
    original = confluent_kafka.Producer

    instrumentor = ConfluentKafkaInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    assert type(producer) is not original
    consumer = confluent_kafka.Consumer({**reader, "group.id": topic})
    assert exchange(producer, consumer, topic) == ["traceparent"] * 3
    check(spans, topic)
    instrumentor.uninstrument()
    assert confluent_kafka.Producer is original

    plain = (
        confluent_kafka.Producer({"bootstrap.servers": bootstrap}),
        confluent_kafka.Consumer({**reader, "group.id": f"{topic}-2"}),
    )
    one = instrumentor.instrument_producer(plain[0], tracer_provider=provider)
    other = instrumentor.instrument_consumer(plain[1], tracer_provider=provider)
    assert exchange(one, other, f"{topic}-2") == ["traceparent"] * 3
    check(spans, f"{topic}-2")


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.write(f"{confluent_kafka.Producer.__module__}\n")
