"""Many topics, and many partitions, on one broker: to create, to list, to keep in memory, to start with."""

import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from broker_speed import new_topic
from brokers import Running
from cluster import until
from groups import Wire
from load_sockets import ask_for
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest
from partitions import ended

Figures = dict[str, float]
Start = Callable[..., AbstractContextManager[Running]]
TOPICS: Final = 10_000
A_REQUEST: Final = 1_000
OF_A_TOPIC: Final = 5_000
_METADATA_VERSION: Final = 12
_LATEST: Final = -1
_SMALL: Final = 10


def create(wire: Wire, names: list[str], partitions: int) -> None:
    """Create topics with one request."""
    rows = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    answer = wire.ask(CreateTopicsRequest(topics=rows, timeout_ms=120_000), 5)
    assert {row.error_code for row in answer.topics} == {0}, answer.topics[0]


def leads(wire: Wire, names: list[str], partitions: int) -> bool:
    """Return True if the broker answers for all partitions of some topics."""
    rows = [ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in range(partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=rows) for name in names])
    answer = wire.ask(request, 5)
    return all(row.error_code == 0 for topic in answer.topics for row in topic.partitions)


def _await_leaders(wire: Wire, names: list[str], partitions: int) -> None:
    """Wait until the broker leads all partitions; it is asked for as many as one topic of the `partitions` row has."""
    step = max(1, OF_A_TOPIC // partitions)
    for at in range(0, len(names), step):
        while not leads(wire, names[at : at + step], partitions):
            time.sleep(0.01)  # there is no notification of a new leader: ask until it answers


def create_topics(broker: Running) -> Figures:
    """Create TOPICS topics of one partition, A_REQUEST in each request, until the broker leads all of them."""
    wire = Wire(broker)
    names = [f"listed-{number:05}" for number in range(TOPICS)]
    cpu, begun = broker.cpu_seconds(), time.perf_counter()
    for at in range(0, TOPICS, A_REQUEST):
        create(wire, names[at : at + A_REQUEST], 1)
    _await_leaders(wire, names, 1)
    seconds = time.perf_counter() - begun
    wire.close()
    return {"create s": seconds, "CPU s": broker.cpu_seconds() - cpu, "memory MB": broker.resident_mb()}


def list_topics(broker: Running, seconds: float) -> Figures:
    """Request all topics again and again on one connection."""
    wire = Wire(broker)
    request: Any = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    frame = wire.frame(request, _METADATA_VERSION)
    answer = wire.ask(request, _METADATA_VERSION)
    wire.close()
    assert sum(not row.error_code for row in answer.topics) >= TOPICS
    answered = ask_for([(broker, repeat(frame))], seconds)
    return {
        "ms": statistics.median(answered.took_ms),
        "CPU ms": answered.cpu_s / answered.answers * 1000,
    }


def many(start: Start, partitions: int) -> Figures:
    """All figures of a broker with `partitions` partitions, in topics of OF_A_TOPIC."""
    names = [f"many-{number}" for number in range(partitions // OF_A_TOPIC)]
    data = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    figures: Figures = {}
    try:
        with start(data=data) as broker:
            wire = Wire(broker)
            cpu, begun = broker.cpu_seconds(), time.perf_counter()
            for name in names:
                create(wire, [name], OF_A_TOPIC)
            _await_leaders(wire, names, OF_A_TOPIC)
            figures["create s"] = time.perf_counter() - begun
            figures["create CPU s"] = broker.cpu_seconds() - cpu
            figures["memory MB"] = broker.resident_mb()
            figures["a small topic ms"] = _small_topic_ms(broker)
            figures["idle CPU %"] = _idle_percent(broker)
            wire.close()
            figures["stop s"] = _stop(broker)
        begun = time.perf_counter()
        with start(data=data) as broker:
            wire = Wire(broker)
            _await_leaders(wire, names, OF_A_TOPIC)
            figures["start s"] = time.perf_counter() - begun
            figures["memory after start MB"] = broker.resident_mb()
            wire.close()
            _stop(broker)
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return figures


def _small_topic_ms(broker: Running) -> float:
    """Median of the times until a new topic of one partition answers."""
    took = []
    for _ in range(_SMALL):
        begun = time.perf_counter()
        new_topic(broker)
        took.append((time.perf_counter() - begun) * 1000)
    return statistics.median(took)


def _idle_percent(broker: Running) -> float:
    """CPU time of a broker without requests, in % of a core."""
    time.sleep(3)  # what the last request has begun comes to an end
    cpu, begun = broker.cpu_seconds(), time.perf_counter()
    time.sleep(5)
    return (broker.cpu_seconds() - cpu) / (time.perf_counter() - begun) * 100


def _stop(broker: Running) -> float:
    """Seconds from SIGTERM to the end of the process."""
    begun = time.perf_counter()
    os.kill(broker.pid, signal.SIGTERM)
    until(lambda: ended(broker.pid))
    return time.perf_counter() - begun
