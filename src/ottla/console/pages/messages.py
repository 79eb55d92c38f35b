"""Messages of a topic: search, one message, download, live tail, and producing one."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from ottla.client.admin.topics import TopicDescription
from ottla.client.topics import TopicPartition
from ottla.console.download import KINDS, file_of, has_parquet, parquet_remedy
from ottla.console.message_search import MOST_BYTES, MessageSearch, SearchResult
from ottla.console.pages.topics import describe_topic, offsets_of
from ottla.console.problem import Problem
from ottla.console.record_filter import FilterTexts, RecordFilter
from ottla.console.record_view import FORMATS, SHOWN, Decoders, RecordView, record_view
from ottla.console.times import timestamp_ms
from ottla.console.visit import Visit, change, integer, page
from ottla.records.record import Header, Record

_MOST_SHOWN: Final = 500
_MOST_DOWNLOADED: Final = 10_000
_MOST_SEARCHES: Final = 4
_MOST_TAILS: Final = 16
_TAIL_MS: Final = 3_600_000
_TAIL_RECORDS_A_POLL: Final = 100
_STARTS: Final = ("newest", "oldest", "offset", "time")
_ARGUMENTS: Final = (
    "start",
    "at",
    "partition",
    "key",
    "value",
    "header",
    "json",
    "regex",
    "format",
    "committed",
    "limit",
)


class Query(NamedTuple):
    """Arguments of a search.

    at        offset or time of the start
    positions offsets to continue from
    """

    start: str
    at: str
    partition: int | None
    texts: FilterTexts
    form: str
    committed: bool
    limit: int
    positions: dict[int, int]


def _texts(visit: Visit) -> FilterTexts:
    return FilterTexts(
        visit.text("key"), visit.text("value"), visit.text("header"), visit.text("json"), visit.text("regex") == "1"
    )


def _query(visit: Visit) -> Query:
    """Return the arguments of a request. Raises Problem."""
    start, form = visit.text("start", "newest"), visit.text("format", "auto")
    if start not in _STARTS:
        raise Problem(f"start is one of {', '.join(_STARTS)}.")
    if form not in FORMATS:
        raise Problem(f"format is one of {', '.join(FORMATS)}.")
    texts = _texts(visit)
    partition = visit.integer("partition", -1)
    positions = {}
    for pair in filter(None, visit.text("from").split(",")):
        index, _, offset = pair.partition(":")
        positions[integer(index, "from", 0)] = integer(offset, "from", 0)
    most = _MOST_DOWNLOADED if visit.text("download") else _MOST_SHOWN
    return Query(
        start,
        visit.text("at"),
        None if partition < 0 else partition,
        texts,
        form,
        visit.text("committed") == "1",
        visit.integer("limit", 50, 1, most),
        positions,
    )


def _query_as_sent(visit: Visit) -> Query:
    """Return the arguments of a request for its form, whatever they are."""
    numbers = {"partition": -1, "limit": 50}
    for name in numbers:
        if visit.text(name).isdecimal():
            numbers[name] = int(visit.text(name))
    texts = _texts(visit)
    partition = None if numbers["partition"] < 0 else numbers["partition"]
    committed = visit.text("committed") == "1"
    start, form = visit.text("start", "newest"), visit.text("format", "auto")
    return Query(start, visit.text("at"), partition, texts, form, committed, numbers["limit"], {})


async def messages(visit: Visit) -> Response:
    """Show the messages of a search, or download them. A search that is not possible keeps its form."""
    description = await describe_topic(visit)
    result = SearchResult([], 0, {}, False)
    bounds: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]] = ({}, {})
    try:
        query = _query(visit)
        matches = RecordFilter(query.texts)
        partitions = _partitions(description, query)
        if partitions:
            bounds, result = await _search(visit, query, matches, partitions)
    except Problem as problem:
        if visit.text("download"):
            raise
        return await _render_results(visit, description, _query_as_sent(visit), result, bounds, problem)
    if visit.text("download"):
        if result.is_full:
            raise Problem(f"The file would be larger than {MOST_BYTES >> 20} MB: choose fewer messages.", 413)
        return await _download(visit, description.name, result.records)
    return await _render_results(visit, description, query, result, bounds)


async def _render_results(
    visit: Visit,
    description: TopicDescription,
    query: Query,
    result: SearchResult,
    bounds: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]],
    problem: Problem | None = None,
) -> Response:
    """Render the form of a search with what was found."""
    arguments = {name: visit.text(name) for name in _ARGUMENTS if visit.text(name)}
    following = ",".join(f"{partition.partition}:{offset}" for partition, offset in sorted(result.next.items()))
    rows = await _views(visit, result.records, query.form)
    is_backwards = query.start == "newest"
    if is_backwards:
        rows.reverse()
    return visit.render(
        "messages.html",
        200 if problem is None else problem.status,
        title=f"Messages of {description.name}",
        name=description.name,
        query=query,
        problem="" if problem is None else str(problem),
        is_filtered=any(query.texts),
        rows=rows,
        scanned=result.scanned,
        timed_out=result.timed_out,
        full_mb=MOST_BYTES >> 20 if result.is_full else 0,
        next=visit.link(f"/topics/{description.name}/messages", **arguments, **{"from": following})
        if following
        else "",
        is_backwards=is_backwards,
        partitions=[row.partition for row in description.partitions],
        formats=FORMATS,
        download={
            kind: visit.link(f"/topics/{description.name}/messages", **{**arguments, "limit": 10_000}, download=kind)
            for kind in KINDS
        },
        parquet_remedy="" if has_parquet() else parquet_remedy(),
        tail=visit.link(f"/topics/{description.name}/tail", **arguments),
        total=sum(bounds[1].values()) - sum(bounds[0].values()),
        seconds=visit.settings.search_ms / 1000,
    )


async def _views(visit: Visit, records: list[Record], form: str, limit: int | None = SHOWN) -> list[RecordView]:
    """Return records as they are shown; in a thread if a schema registry may have to be asked."""
    decoders = Decoders(visit.settings.internal_record, visit.cluster.registry_text)

    def views() -> list[RecordView]:
        return [record_view(record, form, decoders, limit) for record in records]

    return views() if decoders.registry_text is None else await run_in_threadpool(views)


def _partitions(description: TopicDescription, query: Query) -> list[TopicPartition]:
    """Return the selected partitions that have a leader. Raises Problem."""
    if query.partition is not None and query.partition >= len(description.partitions):
        raise Problem(f"{description.name} has no partition {query.partition}.", 404)
    return [
        TopicPartition(description.name, row.partition)
        for row in description.partitions
        if row.leader >= 0 and query.partition in (None, row.partition)
    ]


@contextmanager
def _one_more_search(visit: Visit) -> Iterator[None]:
    """Count a search. Raises Problem if too many run: each holds records in memory and reads from the brokers."""
    console = visit.console
    if console.searches >= _MOST_SEARCHES:
        raise Problem(f"{console.searches} searches are running: try again in some seconds.", 503)
    console.searches += 1
    try:
        yield
    finally:
        console.searches -= 1


async def _search(
    visit: Visit, query: Query, matches: RecordFilter, partitions: list[TopicPartition]
) -> tuple[tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]], SearchResult]:
    clock = visit.settings.clock
    deadline_ms = clock.now_ms() + visit.settings.search_ms
    configs = {"isolation.level": "read_committed" if query.committed else "read_uncommitted"}
    with _one_more_search(visit):
        async with visit.cluster.consumer(**configs) as consumer:
            starts = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
            search = MessageSearch(consumer, matches, query.limit, clock, deadline_ms)
            if query.start == "newest":
                highs = {part: min(query.positions.get(part.partition, end), end) for part, end in ends.items()}
                highs = {part: max(high, starts[part]) for part, high in highs.items()}
                return (starts, ends), await search.backwards(starts, highs)
            first = dict(starts)
            if query.positions:
                first = {part: query.positions.get(part.partition, ends[part]) for part in partitions}
            elif query.start == "offset":
                first = dict.fromkeys(partitions, integer(query.at, "Offset", 0))
            elif query.start == "time":
                moments = dict.fromkeys(partitions, timestamp_ms(query.at))
                times = await consumer.offsets_for_times(moments)
                first = {part: entry.offset if entry.offset >= 0 else ends[part] for part, entry in times.items()}
            lows = {part: min(max(offset, starts[part]), ends[part]) for part, offset in first.items()}
            return (starts, ends), await search.forwards(lows, ends)


async def _download(visit: Visit, topic: str, records: list[Record]) -> Response:
    """Return records as a file. Raises Problem."""
    kind = visit.text("download")
    written = await run_in_threadpool(file_of, kind, topic, records)
    return Response(
        written.content,
        media_type=written.media_type,
        headers={"content-disposition": f'attachment; filename="{topic}.{kind}"'},
    )


async def message(visit: Visit) -> Response:
    """Show one message in full."""
    name = visit.path("topic")
    partition = TopicPartition(name, integer(visit.path("partition"), "Partition", 0))
    offset = integer(visit.path("offset"), "Offset", 0)
    form = visit.text("format", "auto")
    clock = visit.settings.clock
    with _one_more_search(visit):
        async with visit.cluster.consumer() as consumer:
            search = MessageSearch(
                consumer, RecordFilter(FilterTexts()), 1, clock, clock.now_ms() + visit.settings.search_ms
            )
            ends = await consumer.end_offsets([partition])
            result = await search.forwards({partition: min(offset, ends[partition])}, ends)
    if not result.records or result.records[0].offset != offset:
        raise Problem(f"{partition} has no message at offset {offset}: it may have been deleted or compacted.", 404)
    record = result.records[0]
    (row,) = await _views(visit, [record], form if form in FORMATS else "auto", None)
    return visit.render(
        "message.html",
        title=f"{partition} @ {offset}",
        name=name,
        row=row,
        formats=FORMATS,
        form=form,
        end=ends[partition],
    )


async def tail(visit: Visit) -> Response:
    """Stream new messages as server-sent events."""
    description = await describe_topic(visit)
    query = _query(visit)
    matches = RecordFilter(query.texts)
    partitions = _partitions(description, query)
    if visit.console.tails >= _MOST_TAILS:
        raise Problem(f"{_MOST_TAILS} live tails are open: close one.", 503)
    _, ends = await offsets_of(visit, partitions)
    most = visit.integer("most", 0)
    events = _events(visit, query, matches, ends, most)
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
    )


async def _events(
    visit: Visit, query: Query, matches: RecordFilter, ends: Mapping[TopicPartition, int], most: int
) -> AsyncIterator[str]:
    """Yield matching records from the end on, for an hour at most; `most` ends it after a number of records."""
    visit.console.tails += 1
    clock = visit.settings.clock
    deadline_ms, sent, skipped = clock.now_ms() + _TAIL_MS, 0, 0
    configs = {"isolation.level": "read_committed" if query.committed else "read_uncommitted"}
    try:
        yield "retry: 3000\nevent: open\ndata: {}\n\n"
        async with visit.cluster.consumer(**configs) as consumer:
            consumer.assign(list(ends))
            for partition, offset in ends.items():
                consumer.seek(partition, offset)
            while clock.now_ms() < deadline_ms and not (most and sent >= most):
                matching = [record for record in await consumer.consume(5_000, timeout=1.0) if matches(record)]
                skipped += max(0, len(matching) - _TAIL_RECORDS_A_POLL)  # a browser cannot show more
                for view in await _views(visit, matching[-_TAIL_RECORDS_A_POLL:], query.form):
                    yield f"data: {json.dumps({**view.document(), 'skipped': skipped})}\n\n"
                    sent += 1
                if not matching:
                    yield ": alive\n\n"  # shows that the connection is open, and finds one that is not
    finally:
        visit.console.tails -= 1


async def show_produce(visit: Visit) -> Response:
    """Show the form for a new message."""
    description = await describe_topic(visit)
    return visit.render(
        "produce.html",
        title=f"Produce to {description.name}",
        name=description.name,
        partitions=[row.partition for row in description.partitions],
    )


async def produce(visit: Visit) -> Response:
    """Produce one message."""
    name = visit.path("topic")
    visit.change = f"produce a message to topic {name}"
    form = await visit.form()
    headers: list[Header] = []
    for line in filter(None, map(str.strip, form.get("headers", "").splitlines())):
        header, equals, text = line.partition("=")
        if not equals:
            raise Problem(f"Headers are lines of NAME=VALUE, not {line[:60]!r}.")
        headers.append((header, text.encode()))
    key = None if form.get("key_null") else form.get("key", "").encode()
    value = None if form.get("value_null") else _bytes_of(form.get("value", ""), form.get("encoding", "text"))
    partition = integer(form.get("partition", ""), "Partition", -1)
    async with visit.cluster.producer() as producer:
        delivered = await (await producer.send(name, value, key, partition, headers=headers))
    where = f"/topics/{name}/messages/{delivered.partition}/{delivered.offset}"
    return visit.redirect_with_notice(
        visit.link(where), f"Produced at offset {delivered.offset} of partition {delivered.partition}."
    )


def _bytes_of(text: str, encoding: str) -> bytes:
    if encoding == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise Problem("A value in hex has two digits for each byte, like 00 ff.") from None
    text = text.replace("\r\n", "\n")  # forms send line ends as CRLF
    if encoding == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Problem(f"The value is not JSON: {error}.") from None
    return text.encode()


ROUTES = [
    page("/topics/{topic}/messages", messages),
    page("/topics/{topic}/messages/{partition}/{offset}", message),
    page("/topics/{topic}/tail", tail),
    page("/topics/{topic}/produce", show_produce),
    change("/topics/{topic}/produce", produce),
]
