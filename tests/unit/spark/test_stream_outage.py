"""A stream reader whose brokers are away for a long time, with a clock that moves by a call's timeout."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.errors import BrokersUnreachable
from ottla.spark import stream
from ottla.spark.options import source_options
from ottla.spark.stream import OttlaStreamReader

OPTIONS = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "brokerOutageTimeout": "10h"}
HOUR = 3_600_000


class Away(OttlaStreamReader):
    """A reader whose calls fail after their timeout until `back_ms`."""

    def __init__(self, *, is_available_now: bool, back_ms: int) -> None:
        self.now = 0
        self.back_ms = back_ms
        self.options = source_options(OPTIONS, stream=True)
        self._target = {} if is_available_now else None
        self._unreachable_since_ms = None
        self._missing_ms = {}

    @property
    def cluster(self) -> Any:
        clock = SimpleNamespace(now_ms=lambda: self.now)
        return SimpleNamespace(clock=clock, config={"default.api.timeout.ms": 5000})

    def _latest_offset_with_retry(self, *_: object) -> dict[str, Any]:
        self.now += 5000
        if self.now < self.back_ms:
            raise BrokersUnreachable("no broker")
        return {"version": 1}


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(stream, "stream_offset", lambda _: SimpleNamespace(is_start=False))
    return {"version": 0}


def test_a_query_that_reads_what_is_there_outlives_thousands_of_failed_calls(start: dict[str, Any]) -> None:
    reader = Away(is_available_now=True, back_ms=9 * HOUR)
    assert reader.latestOffset(start, cast(Any, None)) == {"version": 1}
    assert reader.now == 9 * HOUR


def test_such_a_query_ends_when_the_outage_is_too_long(start: dict[str, Any]) -> None:
    reader = Away(is_available_now=True, back_ms=20 * HOUR)
    with pytest.raises(BrokersUnreachable):
        reader.latestOffset(start, cast(Any, None))
    assert 10 * HOUR <= reader.now <= 10 * HOUR + 10_000


def test_a_query_that_goes_on_hears_that_nothing_is_new(start: dict[str, Any]) -> None:
    reader = Away(is_available_now=False, back_ms=HOUR)
    assert reader.latestOffset(start, cast(Any, None)) is start
    assert reader.now == 5000
