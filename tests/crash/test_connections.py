"""Clients that are too many, too silent or too slow."""

import os
import socket
import struct
import time
from pathlib import Path

import pytest

from ottla.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.conftest import Closed, TopicFactory, Wire

from .conftest import Process, Start


def alive(wire: Wire) -> bool:
    """Return whether the broker answers on this connection."""
    try:
        return bool(wire.send(ApiVersionsRequest(), 0).error_code == 0)
    except (Closed, OSError):
        return False


def test_an_address_with_too_many_connections_is_turned_away(start: Start) -> None:
    broker = start("-o", "max.connections.per.ip=2")
    first, second, third = (broker.wire() for _ in range(3))
    assert [alive(first), alive(second), alive(third)] == [True, True, False]
    first.close()
    assert any(alive(broker.wire()) for _ in range(100))
    assert alive(second)


def test_overrides_replace_the_limit_by_address(start: Start) -> None:
    broker = start("-o", "max.connections.per.ip=0", "-o", "max.connections.per.ip.overrides=127.0.0.1:1")
    assert [alive(broker.wire()), alive(broker.wire())] == [True, False]


def test_connections_above_the_limit_wait_until_one_is_closed(start: Start) -> None:
    broker = start("-o", "max.connections=1")
    first, second = broker.wire(), broker.wire()
    assert alive(first)
    second.send_only(ApiVersionsRequest(), 0)
    second.socket().settimeout(0.2)
    with pytest.raises(TimeoutError):
        second.receive()
    first.close()
    second.socket().settimeout(30)
    assert second.receive().error_code == 0


TWO = (
    "-o",
    "listeners=PLAINTEXT://127.0.0.1:0,OUTER://127.0.0.1:0",
    "-o",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OUTER:PLAINTEXT",
)


def test_a_listener_with_a_limit_of_its_own(start: Start) -> None:
    broker = start(*TWO, "-o", "listener.name.outer.max.connections=1")
    first, second = broker.wire("OUTER"), broker.wire("OUTER")
    assert alive(first)
    second.send_only(ApiVersionsRequest(), 0)
    second.socket().settimeout(0.2)
    with pytest.raises(TimeoutError):
        second.receive()
    assert [alive(broker.wire()) for _ in range(3)] == [True] * 3
    edit = AlterableConfig(name="listener.name.outer.max.connections", config_operation=0, value="2")
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[edit])
    assert first.send(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0
    second.socket().settimeout(30)
    assert second.receive().error_code == 0


def test_a_broker_connects_to_a_full_broker_in_place_of_the_longest_idle_client(start: Start) -> None:
    limits = ("-o", "max.connections=2", "-o", "connections.max.idle.ms=4000")
    broker = start(*TWO, "-o", "inter.broker.listener.name=PLAINTEXT", *limits)
    idle, busy = (broker.wire("OUTER") for _ in range(2))
    assert alive(idle)
    time.sleep(1.2)  # more than one tick of an eighth of connections.max.idle.ms
    assert alive(busy)
    assert alive(broker.wire())
    assert not alive(idle)
    assert alive(busy)


def test_a_raised_limit_accepts_waiting_connections(start: Start) -> None:
    broker = start("-o", "max.connections=1")
    first, second = broker.wire(), broker.wire()
    assert alive(first)
    second.send_only(ApiVersionsRequest(), 0)
    edit = AlterableConfig(name="max.connections", config_operation=0, value="2")
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[edit])
    answer = first.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0
    assert second.receive().error_code == 0


def test_idle_connections_are_closed_and_busy_ones_are_not(start: Start) -> None:
    broker = start("-o", "connections.max.idle.ms=800")
    silent, busy = broker.wire(), broker.wire()
    assert alive(silent)
    began = time.monotonic()
    silent.socket().settimeout(0.05)
    while True:
        assert alive(busy)
        try:
            silent.receive()
        except TimeoutError:
            assert time.monotonic() - began < 20
            continue
        except Closed:
            break
    assert time.monotonic() - began >= 0.8


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory of another process is read from /proc")
def test_a_slow_reader_does_not_fill_the_memory(start: Start) -> None:
    """It asks for 2 GB without reading an answer, and sends more requests than any buffer holds."""
    broker = start()
    topic = TopicFactory(broker.wire())()
    for _ in range(4):
        topic.produce(build([Record(0, 1, None, bytes(1_000_000))]))
    before = memory(broker.pid)
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=4 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic.name, partitions=[part])])
    greedy = broker.wire()
    for _ in range(500):
        greedy.send_only(request, 11)
    flood = socket.create_connection(("127.0.0.1", broker.port))
    flood.settimeout(0.5)
    small = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    with flood, pytest.raises(TimeoutError):
        flood.sendall(small * 20_000_000)  # until neither side takes any more
    assert alive(broker.wire())
    assert memory(broker.pid) - before < 8 << 20
    assert greedy.receive().responses[0].partitions[0].high_watermark == 4


def seconds_of_cpu(process: Process) -> float:
    """Return the CPU time that the broker has used so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def create(wire: Wire, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return int(wire.send(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5).topics[0].error_code)


def test_a_broker_without_descriptors_neither_spins_nor_loses_its_disk(start: Start) -> None:
    broker = start(most_files=80)
    first = broker.wire()
    assert create(first, "before") == NONE
    many = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(120)]
    deadline = time.monotonic() + 20
    while create(first, f"during-{len(many)}") == NONE:  # the last descriptors go to the connections
        assert time.monotonic() < deadline
        many.append(socket.create_connection(("127.0.0.1", broker.port)))
    assert create(first, "without") == KAFKA_STORAGE_ERROR
    used = seconds_of_cpu(broker)
    time.sleep(1)  # measured over a span of time, in which nothing is asked of the broker
    assert seconds_of_cpu(broker) - used < 0.3
    for sock in many:
        sock.close()
    second = broker.wire()
    assert alive(second)
    assert create(second, "without") == NONE
    output = broker.stop()
    assert output.count("cannot accept connections: Too many open files") == 1
    assert "/data is offline" not in output
