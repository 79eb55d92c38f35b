"""Hostile but valid requests at small sizes: each is answered or its connection closed, in passes of the loop that are short.

`python -m tests.fuzz.costs` measures the rest: all sizes and versions, the memory, and a thousand connections.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from ottla.broker.requests import dispatch
from ottla.broker.requests.handlers import SERVED
from ottla.protocol import api, codec, plan
from ottla.protocol.api import APIS
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.schema import Records
from tests.fuzz import costs, hostile
from tests.fuzz.costs import Row, measure_cases
from tests.fuzz.hostile import CLIENT_ID, LARGEST, NAMES, PIPELINED, UNKNOWN, Case
from tests.fuzz.measured import ANSWERED, CLOSED, MeasuredBroker

ADDITIONS: Final = 1_000_000
ADDITIONS_MS: Final = 60
"""CPU that so many additions take on the machine where the bounds were measured."""


def slowness() -> float:
    """Return how many times slower this machine is than that of the bounds, at least 1: what else it does slows it too."""
    began = time.thread_time()
    total = 0
    for number in range(ADDITIONS):
        total += number
    return max(1.0, (time.thread_time() - began) * 1000 / ADDITIONS_MS)


BOUND_MS: Final = (50 if plan.COMPILED else 200) * max(slowness() for _ in range(3))
ATTEMPTS: Final = 3
BURNED_MS: Final = 300
TEN_THOUSAND: Final = 10_000


@pytest.fixture(scope="module")
def broker() -> Iterator[MeasuredBroker]:
    with MeasuredBroker(measures_memory=False) as started:
        yield started


def small_cases(key: int) -> Iterator[Case]:
    """A thousand of everything; of arrays also none, and one; ten thousand of the first; the largest numbers; a burst."""
    for version in hostile.versions_of(key):
        is_newest = version == SERVED[key].versions.last
        for path, kind in hostile.growing(key, version):
            if hostile.is_number(kind):
                if is_newest and hostile.may_be_largest(path):
                    yield Case(key, version, path, LARGEST, UNKNOWN)
                continue
            is_outer = hostile.is_array(kind) and path[0] != "(" and "." not in path
            for size in (0, 1, 1000) if is_outer else (1000,):
                yield Case(key, version, path, size, UNKNOWN)
            if is_outer and is_newest:
                for names in NAMES[1:]:
                    yield Case(key, version, path, 1000, names)
        yield Case(key, version, PIPELINED, hostile.MEGABYTE // 64, UNKNOWN)
    outer = _outer_array(key)
    if outer and key != api.CREATE_TOPICS:  # ten thousand topics take longer to create than all others take
        yield Case(key, SERVED[key].versions.last, outer, TEN_THOUSAND, UNKNOWN)


def _outer_array(key: int) -> str | None:
    for path, kind in hostile.growing(key, SERVED[key].versions.last):
        if hostile.is_array(kind) and path[0] != "(":
            return path
    return None


@pytest.mark.parametrize("key", SERVED, ids=lambda key: APIS[key].name)
def test_a_small_request_never_holds_the_loop(broker: MeasuredBroker, key: int) -> None:
    for version in hostile.versions_of(key):
        costs.warm_up(broker, key, version)
    try:
        slow = []
        for case in small_cases(key):
            bound = 2 * BOUND_MS if case.size == TEN_THOUSAND else BOUND_MS
            (row,) = measure_cases(broker, [case], attempts=ATTEMPTS, limit_ms=bound, restarts=False)
            assert row.outcome in (ANSWERED, CLOSED), row
            if row.longest_ms > bound:
                slow.append(row)
        assert slow == []
        assert broker.serves()
    finally:
        if key in costs.MAKERS:
            broker.restart()


def test_requests_from_many_connections_at_once(broker: MeasuredBroker) -> None:
    case = Case(api.METADATA, hostile.versions_of(api.METADATA)[0], "topics", 10, hostile.EXISTING)
    (row,) = measure_cases(broker, [case], 200, attempts=ATTEMPTS, limit_ms=BOUND_MS)
    assert row.outcome == ANSWERED
    assert row.longest_ms <= BOUND_MS
    assert broker.serves()


def plant_a_loop() -> None:
    """Let Heartbeat take BURNED_MS of CPU."""
    ordinary = dispatch.route_of(api.HEARTBEAT)

    def burning(request: Any, broker: Any) -> Any:
        end = time.thread_time_ns() + BURNED_MS * 1_000_000
        while time.thread_time_ns() < end:
            pass
        return ordinary.handler(request, broker)

    dispatch.handles(ordinary.request_class, positions=ordinary.positions)(burning)


def plant_an_endless_loop() -> None:
    ordinary = dispatch.route_of(api.HEARTBEAT)

    def looping(request: Any, broker: Any) -> Any:
        while True:
            pass

    dispatch.handles(ordinary.request_class)(looping)


def test_a_handler_that_burns_processor_time_is_found() -> None:
    with MeasuredBroker(plant_a_loop) as planted:
        (row,) = measure_cases(planted, [Case(api.HEARTBEAT, 4, "group_id", 10, UNKNOWN)], attempts=ATTEMPTS)
        assert row.longest_ms >= BURNED_MS
        assert row.outcome == ANSWERED
        (other,) = measure_cases(planted, [Case(api.LEAVE_GROUP, 5, "group_id", 10, UNKNOWN)], attempts=ATTEMPTS)
        assert other.longest_ms < BURNED_MS
    assert "!" in costs.table([row])
    assert "!" not in costs.table([other._replace(longest_ms=1)])


def test_a_request_that_does_not_end_is_recorded_and_the_broker_replaced() -> None:
    with MeasuredBroker(plant_an_endless_loop, seconds=1) as planted:
        endless = [Case(api.HEARTBEAT, 4, "group_id", size, UNKNOWN) for size in (10, 20)]
        rows = list(measure_cases(planted, [*endless, Case(api.LEAVE_GROUP, 5, "group_id", 10, UNKNOWN)]))
    assert [(row.api, row.outcome) for row in rows] == [("Heartbeat", "does not end"), ("LeaveGroup", ANSWERED)]


def test_memory_is_measured_at_its_peak() -> None:
    with MeasuredBroker() as broker:
        case = Case(api.LIST_TRANSACTIONS, 0, "state_filters", 4 << 20, hostile.EMPTY, fits=True)
        (row,) = measure_cases(broker, [case])
        (answered,) = measure_cases(broker, [Case(api.METADATA, 12, "topics", 1000, UNKNOWN)])
    assert row.peak_mb > 4
    assert (round(row.request_mb), row.outcome, row.response_mb) == (4, CLOSED, 0)
    assert min(answered.response_mb, answered.request_mb) > 0.02
    quick = row._replace(longest_ms=1.0)
    assert "!" not in costs.table([quick])
    assert costs.table([quick._replace(peak_mb=100.0)]).count("!") == 1


@pytest.mark.parametrize("key", SERVED, ids=lambda key: APIS[key].name)
def test_a_request_of_any_size_can_be_read(key: int) -> None:
    """And the grown field has as many elements as the case says."""
    request_class = APIS[key].request_class()
    for version in hostile.versions_of(key):
        for path, kind in hostile.growing(key, version):
            for names in NAMES:
                for size in (LARGEST,) if hostile.is_number(kind) else (0, 3, 200):
                    frame, _ = hostile.request(Case(key, version, path, size, names))
                    header_version = APIS[key].request_header_version(version)
                    _, body = codec.decode(RequestHeader, header_version, frame, 4)
                    request, end = codec.decode(request_class, version, frame, body)
                    assert end == len(frame)
                    if path.startswith("(") or size == LARGEST or kind is Records:
                        continue
                    value: Any = request
                    for name in path.split("."):
                        value = getattr(value[0] if isinstance(value, list) else value, name)
                    assert len(value) == size


def test_the_most_elements_of_a_request_are_what_is_read() -> None:
    case = Case(api.METADATA, 13, "topics", hostile.MOST, UNKNOWN)
    frame, _ = hostile.request(case)
    assert hostile.elements(case, frame) == hostile.MOST_ELEMENTS


def test_the_worst_of_each_api_has_the_highest_peak_of_all() -> None:
    row = Row("Fetch", 18, CLIENT_ID, "1", UNKNOWN, 1, 3.0, 1.0, ANSWERED)
    slow = row._replace(longest_ms=60.0, peak_mb=0.5)
    assert costs.worst([row, slow, row._replace(api="Produce")]) == [
        slow._replace(peak_mb=1.0),
        row._replace(api="Produce"),
    ]


def test_a_comparison_marks_what_still_takes_too_long() -> None:
    before = Row("Fetch", 18, "topics", "1000", UNKNOWN, 1, 3000.0, 1.0, "does not end")
    slow, quick = (before._replace(longest_ms=ms, outcome=ANSWERED) for ms in (60.0, 6.0))
    assert "| Fetch | above 3000 | 60.0 * | 1.0 | 1.0 | 18, topics, 1000, unknown |" in costs.comparison(
        [before], [slow]
    )
    assert "| Fetch | above 3000 | 6.0 | 1.0 | 1.0 |" in costs.comparison([before], [quick])
