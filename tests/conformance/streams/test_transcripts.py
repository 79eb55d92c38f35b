"""Streams groups, action by action: responses and records are those of Apache Kafka, which `record` wrote down."""

from pathlib import Path

import pytest

from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.conformance.conftest import TopicFactory, Wire

from .record import TRANSCRIPTS
from .scenarios import SCENARIOS

API = StreamsGroupHeartbeatRequest


@pytest.mark.parametrize("name", SCENARIOS)
def test_transcript(broker: Wire, make_topic: TopicFactory, name: str) -> None:
    expected = (TRANSCRIPTS / f"{name}.txt").read_text().splitlines()
    assert SCENARIOS[name](broker, make_topic).lines == expected


def test_every_transcript_has_a_scenario() -> None:
    assert {path.stem for path in Path(TRANSCRIPTS).glob("*.txt")} == SCENARIOS.keys()
