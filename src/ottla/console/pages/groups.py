"""Groups of all kinds: list with lag, members and offsets of one group, and the lag as numbers for its chart."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.admin.groups import ListedGroup
from ottla.client.errors import KafkaError
from ottla.client.topics import EARLIEST, LATEST, TopicPartition
from ottla.console.broker_metrics import in_flight
from ottla.console.clusters import TIMEOUT_S
from ottla.console.group_positions import SHARE, group_lags
from ottla.console.ordering import Ordering, ordering
from ottla.console.problem import Problem
from ottla.console.sampler import INTERVAL_MS
from ottla.console.share_states import ShareState
from ottla.console.visit import Visit, page

_PAGE: Final = 50
STREAMS: Final = "streams"


class OffsetRow(NamedTuple):
    """Offsets of a group in one partition: the committed offset, or the start offset of a share group."""

    partition: TopicPartition
    offset: int | None
    end: int | None
    lag: int | None
    metadata: str
    member: str
    state: ShareState | None = None
    in_flight: int | None = None


class DeadLetters(NamedTuple):
    """Dead-letter topic of a share group, and its number of records; None if it does not exist."""

    topic: str
    records: int | None


class GroupRow(NamedTuple):
    """Group in the list; the lag is None if it is not known."""

    group: ListedGroup
    lag: int | None


_COLUMNS: Final[Mapping[str, Callable[[GroupRow], Any]]] = {
    "id": lambda row: row.group.group_id,
    "type": lambda row: row.group.type or "classic",
    "state": lambda row: row.group.state,
    "protocol": lambda row: row.group.protocol_type,
    "lag": lambda row: row.lag,
}
_MOST_SORTED: Final = 1_000
"""Groups of a list that is sorted by lag, which the brokers are asked for."""


async def groups(visit: Visit) -> Response:
    """List groups: one page of those whose ids contain the search text."""
    listed = await visit.admin.list_groups(timeout=TIMEOUT_S)
    query, kind = visit.text("q"), visit.text("type")
    kinds = sorted({group.type or "classic" for group in listed.values()})
    matching = [
        group
        for _, group in sorted(listed.items())
        if query.lower() in group.group_id.lower() and kind in ("", group.type or "classic")
    ]
    order, note = ordering(visit, _COLUMNS), ""
    if order.column == "lag" and len(matching) > _MOST_SORTED:
        order, note = Ordering("id", False), f"More than {_MOST_SORTED} groups are not sorted by lag."
    last = max(1, -(-len(matching) // _PAGE))
    number = min(visit.integer("page", 1, 1), last)
    on_page = slice((number - 1) * _PAGE, number * _PAGE)
    if order.column == "lag":
        lags = await group_lags(visit.admin, matching, TIMEOUT_S / 2)
        rows = order.sort([GroupRow(group, lags.get(group.group_id)) for group in matching], _COLUMNS)[on_page]
    else:
        rows = order.sort([GroupRow(group, None) for group in matching], _COLUMNS)[on_page]
        lags = await group_lags(visit.admin, [row.group for row in rows], TIMEOUT_S / 2)
        rows = [row._replace(lag=lags.get(row.group.group_id)) for row in rows]
    return visit.render(
        "groups.html",
        title="Groups",
        rows=rows,
        order=order,
        note=note,
        count=len(matching),
        page=number,
        last=last,
        query=query,
        kind=kind,
        kinds=kinds,
    )


async def find_group(visit: Visit, group_id: str) -> ListedGroup:
    """Return the group of an id. Raises Problem."""
    group = (await visit.admin.list_groups(timeout=TIMEOUT_S)).get(group_id)
    if group is None:
        raise Problem(f"There is no group {group_id!r}: it may have been deleted.", 404)
    return group


async def offset_rows(visit: Visit, group: ListedGroup, owners: dict[TopicPartition, str]) -> list[OffsetRow]:
    """Return the offsets of a group in each partition, sorted."""
    group_id, rows = group.group_id, []
    if group.type == SHARE:
        starts = (await visit.admin.list_share_group_offsets([group_id], timeout=TIMEOUT_S))[group_id]
        ends = await visit.admin.list_offsets(dict.fromkeys(starts, LATEST), timeout=TIMEOUT_S)
        topic_ids = {topic.name or "": topic.topic_id for topic in (await visit.cluster.metadata()).topics}
        states = await visit.admin.share_states(group_id, starts, topic_ids)
        for partition, entry in sorted(starts.items()):
            end = ends.successes.get(partition)
            last = None if end is None else end.offset
            owner, state = owners.get(partition, ""), states.get(partition)
            rows.append(OffsetRow(partition, entry.start_offset, last, entry.lag, "", owner, state))
        return rows
    committed = (await visit.admin.list_consumer_group_offsets([group_id], timeout=TIMEOUT_S))[group_id]
    partitions = sorted({*committed, *owners})
    ends = await visit.admin.list_offsets(dict.fromkeys(partitions, LATEST), timeout=TIMEOUT_S)
    for partition in partitions:
        entry_of = committed.get(partition)
        offset = entry_of.offset if entry_of is not None and entry_of.offset >= 0 else None
        end = ends.successes.get(partition)
        last = None if end is None else end.offset
        lag = None if last is None or offset is None else max(0, last - offset)
        metadata = entry_of.metadata if entry_of is not None else ""
        rows.append(OffsetRow(partition, offset, last, lag, metadata, owners.get(partition, "")))
    return rows


async def dead_letters(visit: Visit, group_id: str) -> DeadLetters | None:
    """Return the dead-letter topic of a share group; None without one, and for a client that may not know it."""
    resource = ConfigResource(ResourceType.GROUP, group_id)
    try:
        configs = (await visit.admin.describe_configs([resource], timeout=TIMEOUT_S)).successes.get(resource, {})
    except KafkaError:
        return None
    entry = configs.get("errors.deadletterqueue.topic.name")
    if entry is None or not entry.value:
        return None
    topics = {topic.name: topic for topic in (await visit.cluster.metadata()).topics}
    if entry.value not in topics:
        return DeadLetters(entry.value, None)
    partitions = [TopicPartition(entry.value, row.partition_index) for row in topics[entry.value].partitions]
    starts, ends = [
        (await visit.admin.list_offsets(dict.fromkeys(partitions, place), timeout=TIMEOUT_S)).successes
        for place in (EARLIEST, LATEST)
    ]
    return DeadLetters(
        entry.value, sum(ends[partition].offset - starts[partition].offset for partition in ends if partition in starts)
    )


async def group(visit: Visit) -> Response:
    """Show a group: state, members, offsets and lag."""
    group_id = visit.text("id")
    listed = await find_group(visit, group_id)
    described: Any = None
    error = ""
    try:
        if listed.type == SHARE:
            described = (await visit.admin.describe_share_groups([group_id], timeout=TIMEOUT_S))[group_id]
        elif listed.type == STREAMS:
            described = (await visit.admin.describe_streams_groups([group_id], timeout=TIMEOUT_S))[group_id]
        else:
            described = (await visit.admin.describe_consumer_groups([group_id], timeout=TIMEOUT_S))[group_id]
    except KafkaError as failure:
        error = str(failure)
    members = described.members if described is not None else ()
    assignments = {member.member_id: _assignment(listed, member) for member in members}
    owners: dict[TopicPartition, str] = {}
    if listed.type not in (SHARE, STREAMS):
        owners = {partition: member.member_id for member in members for partition in member.assignment}
    rows = await offset_rows(visit, listed, owners)
    metrics = visit.cluster.access.metrics if listed.type == SHARE else ()
    if metrics:
        counts, errors = await run_in_threadpool(in_flight, metrics, group_id)
        rows = [row._replace(in_flight=counts.get(row.partition, None if errors else 0)) for row in rows]
        error = " ".join(filter(None, [error, *errors]))
    lags = [row.lag for row in rows if row.lag is not None]
    return visit.render(
        "group.html",
        title=group_id,
        group=listed,
        described=described,
        error=error,
        members=members,
        assignments=assignments,
        assignor="sticky" if listed.type == STREAMS else getattr(described, "assignor", ""),
        rows=rows,
        lag=sum(lags) if lags else None,
        is_share=listed.type == SHARE,
        has_metrics=bool(metrics),
        dead_letters=await dead_letters(visit, group_id) if listed.type == SHARE else None,
        topics=sorted({row.partition.topic for row in rows}),
    )


def _assignment(listed: ListedGroup, member: Any) -> str:
    """Return the partitions of a member, or the tasks of a member of a streams group, as text."""
    if listed.type != STREAMS:
        return ", ".join(map(str, sorted(member.assignment)))
    roles = (("active", member.assignment.active), ("standby", member.assignment.standby))
    return "; ".join(
        f"{role} {', '.join(f'{name}_{number}' for name, number in tasks)}" for role, tasks in roles if tasks
    )


async def lag(visit: Visit) -> Response:
    """Return the lag of a group now and its history, for the chart."""
    group_id, histories = visit.text("id"), visit.cluster.sampler.lags
    listed = await find_group(visit, group_id)
    histories.watch(group_id)
    lags = await group_lags(visit.admin, [listed], TIMEOUT_S / 2)
    latest_ms = histories.latest_ms(group_id)
    if group_id in lags and (latest_ms is None or visit.now_ms - latest_ms >= INTERVAL_MS // 2):
        histories.add(group_id, visit.now_ms, lags[group_id])
    points = histories.points(group_id, visit.integer("after", -1, -1))
    return JSONResponse(
        {"time": visit.now_ms, "lag": lags.get(group_id), "state": listed.state, "series": {"lag": points}}
    )


ROUTES = [page("/groups", groups), page("/group", group), page("/group/lag", lag)]
