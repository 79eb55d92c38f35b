"""Round trips of a client beside hostile ones, with Ottla and with Apache Kafka 4.4.0.

    python bench/neighbours.py [--seconds 15] [--rounds 5]

Four connections send without pause, each as soon as it has the response to the request before: Metadata of 100,000 unknown
topics, OffsetFetch of 90,000, DescribeConfigs of 20,000, CreateTopics of 9,000 that are only validated. Beside them a producer
and a consumer (confluent-kafka) do single round trips: a record of 100 bytes is acknowledged and read, then comes the next.
The brokers take turns, each started fresh and warmed up by two seconds of round trips alone; median of the rounds.
"""

import argparse
import multiprocessing
import socket
import statistics
import threading
import time
import uuid
from multiprocessing.synchronize import Event
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from broker_speed import new_topic
from brokers import Running, kafka, kafka_is_there, ottla, record
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.schema import Request

WARM_SECONDS: Final = 2.0
TOPIC: Final = 2
"""Type of a resource."""
PAYLOAD: Final = bytes(100)


def hostile_requests() -> list[tuple[Request, int]]:
    """The requests of the four connections, with their versions."""
    named = [OffsetFetchRequestTopics(name=f"unknown-{number}", partition_indexes=[0]) for number in range(90_000)]
    return [
        (
            MetadataRequest(
                topics=[MetadataRequestTopic(name=f"unknown-{number}") for number in range(100_000)],
                allow_auto_topic_creation=False,
            ),
            9,
        ),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="unknown", topics=named)]), 8),
        (
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=TOPIC, resource_name=f"unknown-{number}", configuration_keys=None
                    )
                    for number in range(20_000)
                ]
            ),
            4,
        ),
        (
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(name=f"planned-{number}", num_partitions=1, replication_factor=1)
                    for number in range(9_000)
                ],
                timeout_ms=60_000,
                validate_only=True,
            ),
            7,
        ),
    ]


def send_without_pause(address: tuple[str, int], frame: bytes, answers: Any, number: int) -> None:
    """Send a request again and again, and drop the responses."""
    buffer = bytearray(1 << 18)
    with socket.create_connection(address) as connection:
        while True:
            connection.sendall(frame)
            head = b""
            while len(head) < 4:
                head += connection.recv(4 - len(head))
            left = int.from_bytes(head, "big")
            while left:
                received = connection.recv_into(buffer, min(left, len(buffer)))
                if not received:
                    raise SystemExit(f"the broker closed connection {number}")
                left -= received
            answers[number] += 1


def be_hostile(address: tuple[str, int], started: Event, answers: Any) -> None:
    """Run the four connections."""
    for number, (request, version) in enumerate(hostile_requests()):
        frame = b"".join(ClientConnection("hostile").request(request, version))
        threading.Thread(target=send_without_pause, args=(address, frame, answers, number), daemon=True).start()
    started.set()
    threading.Event().wait()


def round_trips(broker: Running, topic: str, seconds: float) -> list[float]:
    """Milliseconds of single round trips from a producer to a consumer."""
    producer = Producer({**broker.client, "linger.ms": 0})
    consumer = Consumer({**broker.client, "group.id": uuid.uuid4().hex, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    times: list[float] = []
    try:
        # Until the consumer has found the end of the partition records are not for it.
        while consumer.poll(0.2) is None:
            producer.produce(topic, PAYLOAD)
            producer.flush()
        while consumer.poll(0.5) is not None:
            pass
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            producer.produce(topic, PAYLOAD)
            producer.flush()
            while consumer.poll(60) is None:
                pass
            times.append((time.perf_counter() - begun) * 1000)
    finally:
        consumer.close()
    return times


def measure(broker: Running, seconds: float) -> dict[str, float]:
    """Round trips beside hostile clients."""
    topic = new_topic(broker)
    round_trips(broker, topic, WARM_SECONDS)
    context = multiprocessing.get_context("spawn")
    host, _, port = broker.bootstrap_servers.rpartition(":")
    started, answers = context.Event(), context.Array("i", 4)
    hostile = context.Process(target=be_hostile, args=((host, int(port)), started, answers), daemon=True)
    hostile.start()
    started.wait()
    try:
        times = sorted(round_trips(broker, topic, seconds))
    finally:
        hostile.kill()
        hostile.join()
    return {
        "round trips": len(times),
        "p50 ms": statistics.median(times),
        "p99 ms": times[min(len(times) - 1, len(times) * 99 // 100)],
        "hostile responses": sum(answers[:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    reason = kafka_is_there()
    starting = [ottla] if reason else [kafka, ottla]
    if reason:
        print(f"without Apache Kafka: {reason}")
    figures: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for start in starting:
            with start() as broker:
                measured = measure(broker, options.seconds)
            figures.setdefault(broker.name, []).append(measured)
            print(
                f"{broker.name:20}" + "".join(f"{name}: {value:,.1f}   " for name, value in measured.items()),
                flush=True,
            )
    medians = {
        broker: {name: round(statistics.median(one[name] for one in rounds), 2) for name in rounds[0]}
        for broker, rounds in figures.items()
    }
    for name, row in medians.items():
        print(f"{name}: " + ", ".join(f"{what} {value:,}" for what, value in row.items()))
    record({"options": vars(options), "beside hostile clients": medians})


if __name__ == "__main__":
    main()
