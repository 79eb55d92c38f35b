"""Fetch of very many partitions, in parts between which other clients are served: the steps are those of a small one.

The consumer of a large fetch without a session, and a follower that begins one, name all of their partitions. While there are
too few records the fetch waits like any other, but reads its partitions again in parts too.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.requests.delayed import DelayedAnswer
from ottla.broker.requests.dispatch import PositionalRequest
from ottla.broker.requests.fetch_attempt import FetchAttempt, FetchRows, open_fetch, requested_partition
from ottla.broker.requests.fetch_session import RequestedPartition
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.rows import ROWS_OF_PART
from ottla.tasks.deferred import awaitable


async def fetch_in_parts(request: PositionalRequest, broker: Broker) -> FetchResponse:
    """Serve a fetch. Raises PeerError."""
    opened = open_fetch(request, broker)
    if isinstance(opened, FetchResponse):
        return opened
    tasks, fields = broker.tasks, request.fields
    partitions = _partitions(fields.topics)
    with broker.large_work():
        while some := list(islice(partitions, ROWS_OF_PART)):
            await tasks.pace()
            opened.add(some)
            opened.record_positions(some)
    ends_ms = broker.clock.now_ms() + fields.max_wait_ms
    is_last = opened.is_at_once(fields.max_wait_ms)
    while True:
        # The wait begins before the attempt: what grows in a pause of the attempt counts.
        grown = None if is_last else DelayedAnswer(lambda _: True, opened.watched(), tasks)
        wait = None if grown is None else grown.begin(broker.timeouts, max(0, ends_ms - broker.clock.now_ms()))
        with broker.large_work():
            response = await _attempt(opened, broker, is_last=is_last)
        if grown is not None and wait is not None and response is None:
            await wait
            is_last = broker.clock.now_ms() >= ends_ms
            if is_last:
                opened.expiry_counter()()
            continue
        if grown is not None:
            grown.give_up(True)
        break
    assert response is not None
    with broker.large_work():
        return response if opened.has_batches else await awaitable(opened.convert(response), tasks)


def _partitions(topics: list[Any]) -> Iterator[RequestedPartition]:
    """Yield the partitions of the topics, which are removed from the list: memory has each row once, not twice."""
    topics.reverse()
    while topics:
        topic = topics.pop()
        topic.partitions.reverse()
        while topic.partitions:
            yield requested_partition(topic, topic.partitions.pop())


async def _attempt(opened: FetchAttempt, broker: Broker, *, is_last: bool) -> FetchResponse | None:
    """Do what `FetchAttempt.attempt` does, with pauses."""
    reading = opened.begin(is_last)
    for first in range(0, len(reading.partitions), ROWS_OF_PART):
        await broker.tasks.pace()
        opened.read(reading.partitions[first : first + ROWS_OF_PART], reading)
    if not opened.is_enough(reading):
        return None
    throttled = opened.throttle_response(reading)
    if throttled is not None:
        return throttled
    rows = FetchRows()
    for first in range(0, len(reading.answers), ROWS_OF_PART):
        await broker.tasks.pace()
        opened.respond(reading.answers[first : first + ROWS_OF_PART], rows)
    return opened.end(reading, rows)
