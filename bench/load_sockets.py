"""Many connections to brokers from one process: each has one request in flight, and its answers are counted and dropped."""

import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle, repeat
from typing import Final, NamedTuple

from brokers import Running
from log_speed import produce_frame

Led = tuple[Running, str]
"""A broker, and a topic whose only partition it leads."""
_MEMORY: Final = 1 << 20
"""Bytes that one call receives at most; they are copied from the kernel, as every consumer does, and dropped."""


class Answered(NamedTuple):
    """Requests that a broker has answered within `seconds`.

    received  bytes of all answers
    took_ms   time of each request, ascending
    cpu_s     CPU time of the brokers
    """

    seconds: float
    received: int
    took_ms: list[float]
    cpu_s: float

    @property
    def answers(self) -> int:
        return len(self.took_ms)

    @property
    def p99_ms(self) -> float:
        return self.took_ms[len(self.took_ms) * 99 // 100]


class _Lane:
    """One connection; `left` is what has not arrived of the current answer."""

    __slots__ = ("begun", "frames", "left", "socket")

    def __init__(self, broker: Running, frames: Iterator[bytes]) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.frames = frames
        self.left = 0
        self.begun = 0.0

    def ask(self) -> bool:
        """Send the next request; False if none is left."""
        frame = next(self.frames, None)
        if frame is None:
            return False
        self.begun = time.perf_counter()
        assert self.socket.send(frame) == len(frame)
        return True

    def receive(self, memory: bytearray) -> int:
        """Take the bytes that have arrived; `left` is 0 afterwards if the answer is complete."""
        if self.left == 0:
            received = self.socket.recv_into(memory, 65_536)
            assert received >= 4, "the broker has closed a connection"
            self.left = 4 + int.from_bytes(memory[:4], "big") - received
        else:
            received = self.socket.recv_into(memory, min(self.left, len(memory)))
            assert received, "the broker has closed a connection"
            self.left -= received
        return received


def produce_at_once(topics: Sequence[Led], connections: int, seconds: float) -> Answered:
    """Produce records of 100 bytes for `seconds`, one in flight on each connection; the topics have the connections in turn."""
    frames = [(broker, produce_frame(topic, b"v" * 100)) for broker, topic in topics]
    return ask_for([(broker, repeat(frame)) for (broker, frame), _ in zip(cycle(frames), range(connections))], seconds)


def ask_for(requests: Sequence[tuple[Running, Iterator[bytes]]], seconds: float) -> Answered:
    """Keep one request in flight on each connection for `seconds`, or until there are no more.

    requests  those of each connection, and its broker
    """
    brokers = {broker.bootstrap_servers: broker for broker, _ in requests}.values()
    memory = bytearray(_MEMORY)
    took: list[float] = []
    total = 0
    with ExitStack() as stack:
        lanes = [_Lane(broker, frames) for broker, frames in requests]
        by_fd = {lane.socket.fileno(): lane for lane in lanes}
        poll = stack.enter_context(select.epoll())
        for lane in lanes:
            stack.enter_context(lane.socket)
            poll.register(lane.socket, select.EPOLLIN)
        cpu, begun = sum(broker.cpu_seconds() for broker in brokers), time.perf_counter()
        end = begun + seconds
        for lane in lanes:
            lane.ask()
        waiting = len(lanes)
        while waiting:  # the last answers are awaited, so that the next round begins with an idle broker
            ready = poll.poll(30)
            assert ready, "a broker does not answer"
            for fd, _ in ready:
                lane = by_fd[fd]
                total += lane.receive(memory)
                if lane.left:
                    continue
                now = time.perf_counter()
                took.append((now - lane.begun) * 1000)
                if now >= end or not lane.ask():
                    waiting -= 1
        elapsed = time.perf_counter() - begun
        return Answered(elapsed, total, sorted(took), sum(broker.cpu_seconds() for broker in brokers) - cpu)
