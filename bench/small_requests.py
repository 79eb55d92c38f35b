"""Requests that clients send often and that write nothing or little, by hand on one connection, five in flight."""

import time
import uuid
from collections.abc import Callable
from typing import Final

from brokers import Running
from groups import Answers, ready
from load_groups import ClassicMember
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

IN_FLIGHT: Final = 5
_SESSION_TIMEOUT_MS: Final = 600_000
"""Time to measure others: a member sends no heartbeats meanwhile."""


class SmallRequests:
    """Connection to one broker, with a topic of which metadata are asked and a member of a group."""

    def __init__(self, broker: Running, topic: str) -> None:
        ready(broker).close()
        member = ClassicMember(broker, f"bench-{uuid.uuid4().hex[:8]}", topic, _SESSION_TIMEOUT_MS)
        member.begin()
        while not member.has_joined:
            member.received(member.wire.receive())
        self._wire = wire = member.wire
        beat = HeartbeatRequest(group_id=member.group, generation_id=member.generation, member_id=member.member_id)
        producer = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        metadata = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        assert wire.ask(metadata, 9).topics[0].error_code == 0
        assert wire.ask(beat, 3).error_code == wire.ask(producer, 4).error_code == 0
        self._frames = {
            "Metadata": wire.frame(metadata, 9),
            "Heartbeat": wire.frame(beat, 3),
            "InitProducerId": wire.frame(producer, 4),
        }

    def measures(self, count: int) -> dict[str, Callable[[], float]]:
        """Return, for each kind of request, a function that sends this many, and returns how many a second are answered."""
        return {name: lambda frame=frame: self._rate(frame, count) for name, frame in self._frames.items()}  # type: ignore[misc]

    def _rate(self, frame: bytes, count: int) -> float:
        answers, socket = Answers(), self._wire.socket
        begun = time.perf_counter()
        for _ in range(count // IN_FLIGHT):
            socket.sendall(frame * IN_FLIGHT)
            missing = IN_FLIGHT
            while missing:
                missing -= len(answers.feed(socket.recv(1 << 16)))
        return count / (time.perf_counter() - begun)
