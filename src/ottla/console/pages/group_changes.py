"""Changes of groups: reset with preview, deletion of groups and of offsets, removal of members."""

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from ottla.client.admin.groups import ListedGroup
from ottla.client.config import duration_ms
from ottla.client.topics import TopicPartition
from ottla.console.clusters import TIMEOUT_S
from ottla.console.group_positions import SHARE
from ottla.console.pages.groups import find_group, offset_rows
from ottla.console.pages.topics import offsets_of
from ottla.console.problem import Problem
from ottla.console.times import timestamp_ms
from ottla.console.visit import Visit, change, integer, page

TARGETS: Final = {
    "earliest": "the earliest offset",
    "latest": "the latest offset",
    "time": "a time (UTC)",
    "ago": "a duration ago, like PT1H",
    "offset": "an offset",
    "shift": "a shift by N records, negative: backwards",
}
_OF_SHARE_GROUPS: Final = ("earliest", "latest", "time", "offset")
_SHOWN: Final = 200


def _tool(group: ListedGroup) -> str:
    return "share-groups" if group.type == SHARE else "consumer-groups"


async def show_reset(visit: Visit) -> Response:
    """Show the form of a reset, or, once it has a target, the new offset of each partition."""
    group = await find_group(visit, visit.text("id"))
    rows = await offset_rows(visit, group, {})
    target, value, topic = visit.text("to"), visit.text("value"), visit.text("topic")
    topics = sorted({row.partition.topic for row in rows})
    allowed = [name for name in TARGETS if group.type != SHARE or name in _OF_SHARE_GROUPS]
    if not target:
        targets = {name: TARGETS[name] for name in allowed}
        return visit.render(
            "group_reset.html", title=f"Reset {group.group_id}", group=group, topics=topics, targets=targets
        )
    if target not in allowed:
        raise Problem(f"The target is one of {', '.join(allowed)}.")
    if topic and topic not in topics:
        known = await visit.cluster.topics()
        count = next((row.partitions for row in known if row.name == topic), 0)
        if not count:
            raise Problem(f"There is no topic {topic!r}.", 404)
        partitions = [TopicPartition(topic, index) for index in range(count)]
    else:
        partitions = [row.partition for row in rows if topic in ("", row.partition.topic)]
    if not partitions:
        raise Problem("The group has no offsets: name a topic.")
    current = {row.partition: row.offset for row in rows}
    plan = await _plan(visit, target, value, partitions, current)
    return _preview(visit, group, target, value, topic, current, plan)


def _preview(
    visit: Visit,
    group: ListedGroup,
    target: str,
    value: str,
    topic: str,
    current: Mapping[TopicPartition, int | None],
    plan: Mapping[TopicPartition, int],
) -> Response:
    group_id = group.group_id
    option = {
        "earliest": ["--to-earliest"],
        "latest": ["--to-latest"],
        "time": ["--to-datetime", value],
        "ago": ["--by-duration", value],
        "offset": ["--to-offset", value],
        "shift": ["--shift-by", value],
    }[target]
    scope = ["--topic", topic] if topic else ["--all-topics"]
    command = visit.command(_tool(group), "--reset-offsets", "--group", group_id, *scope, *option, "--execute")
    rows = [
        (str(partition), "–" if current.get(partition) is None else current[partition], offset)
        for partition, offset in sorted(plan.items())
    ]
    hint = "" if group.state in ("Empty", "Dead", "") else f" It has members now ({group.state}): stop them first."
    return visit.confirm(
        f"Reset {group_id} to {TARGETS[target].partition(',')[0]}?",
        text=f"The group {group_id} continues at these offsets.{hint}",
        action=visit.link("/group/reset", id=group_id),
        button="Reset the offsets",
        command=command,
        cancel=visit.link("/group", id=group_id),
        fields={f"{partition.topic}:{partition.partition}": str(offset) for partition, offset in plan.items()},
        titles=("Partition", "Now", "New offset"),
        rows=rows[:_SHOWN],
    )


async def _plan(
    visit: Visit,
    target: str,
    value: str,
    partitions: list[TopicPartition],
    current: Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, within its log. Raises Problem."""
    starts, ends = await offsets_of(visit, partitions)
    lost = [partition for partition in partitions if partition not in starts or partition not in ends]
    if lost:
        raise Problem(f"{lost[0]} has no leader, or may not be read: its offsets are not known.", 409)
    if target in ("earliest", "latest"):
        return {partition: (starts if target == "earliest" else ends)[partition] for partition in partitions}
    if target in ("time", "ago"):
        moment = timestamp_ms(value) if target == "time" else visit.now_ms - _duration(value)
        offsets = await visit.admin.list_offsets(dict.fromkeys(partitions, moment), timeout=TIMEOUT_S)
        at = {partition: offsets[partition].offset for partition in partitions}
        return {partition: offset if offset >= 0 else ends[partition] for partition, offset in at.items()}
    if not value:
        raise Problem("This target needs a value.")
    number = integer(value, "The value", 0, -(2**63))
    plan = {}
    for partition in partitions:
        now = current.get(partition)
        if target == "shift" and now is None:
            raise Problem(f"The group has no offset of {partition}, so it cannot be shifted: choose another target.")
        offset = number if target == "offset" else (now or 0) + number
        plan[partition] = min(max(offset, starts[partition]), ends[partition])
    return plan


def _duration(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise Problem(f"{error}.") from None


async def reset(visit: Visit) -> Response:
    """Set the offsets of the preview."""
    group_id = visit.text("id")
    visit.change = f"reset offsets of group {group_id}"
    group = await find_group(visit, group_id)
    offsets = {}
    for name, value in (await visit.form()).items():
        topic, colon, index = name.rpartition(":")
        if colon:
            offsets[TopicPartition(topic, integer(index, "Partition", 0))] = integer(value, "Offset", 0)
    if not offsets:
        raise Problem("The form has no offsets.")
    visit.change = f"reset offsets of group {group_id} to {', '.join(f'{part}={at}' for part, at in offsets.items())}"
    if group.state not in ("Empty", "Dead", ""):
        raise Problem(f"The group {group_id} has members ({group.state}): stop them, then reset.", 409)
    if group.type == SHARE:
        (await visit.admin.alter_share_group_offsets(group_id, offsets, timeout=TIMEOUT_S)).check()
    else:
        (await visit.admin.alter_consumer_group_offsets(group_id, offsets, timeout=TIMEOUT_S)).check()
    return visit.redirect_with_notice(
        visit.link("/group", id=group_id), f"The offsets of {len(offsets)} partitions were reset."
    )


async def show_delete(visit: Visit) -> Response:
    """Ask whether to delete a group."""
    group = await find_group(visit, visit.text("id"))
    return visit.confirm(
        f"Delete {group.group_id}?",
        text=f"The group {group.group_id} and all its offsets are deleted. Its consumers start as new ones.",
        action=visit.link("/group/delete", id=group.group_id),
        button="Delete the group",
        command=visit.command(_tool(group), "--delete", "--group", group.group_id),
        cancel=visit.link("/group", id=group.group_id),
    )


async def delete(visit: Visit) -> Response:
    """Delete a group."""
    group_id = visit.text("id")
    visit.change = f"delete group {group_id}"
    (await visit.admin.delete_groups([group_id], timeout=TIMEOUT_S)).check()
    return visit.redirect_with_notice(visit.link("/groups"), f"Group {group_id} was deleted.")


async def show_delete_offsets(visit: Visit) -> Response:
    """Ask whether to delete the offsets of a topic."""
    group, topic = await find_group(visit, visit.text("id")), visit.text("topic")
    return visit.confirm(
        f"Delete the offsets of {topic} from {group.group_id}?",
        text=f"The group {group.group_id} forgets where it was in {topic}.",
        action=visit.link("/group/delete-offsets", id=group.group_id, topic=topic),
        button="Delete the offsets",
        command=visit.command(_tool(group), "--delete-offsets", "--group", group.group_id, "--topic", topic),
        cancel=visit.link("/group", id=group.group_id),
    )


async def delete_offsets(visit: Visit) -> Response:
    """Delete the offsets of a topic."""
    group_id, topic = visit.text("id"), visit.text("topic")
    visit.change = f"delete offsets of topic {topic} from group {group_id}"
    group = await find_group(visit, group_id)
    if group.type == SHARE:
        (await visit.admin.delete_share_group_offsets(group_id, [topic], timeout=TIMEOUT_S)).check()
    else:
        rows = await offset_rows(visit, group, {})
        partitions = [row.partition for row in rows if row.partition.topic == topic]
        (await visit.admin.delete_consumer_group_offsets(group_id, partitions, timeout=TIMEOUT_S)).check()
    return visit.redirect_with_notice(visit.link("/group", id=group_id), f"The offsets of {topic} were deleted.")


ROUTES = [
    page("/group/reset", show_reset),
    change("/group/reset", reset),
    page("/group/delete", show_delete),
    change("/group/delete", delete),
    page("/group/delete-offsets", show_delete_offsets),
    change("/group/delete-offsets", delete_offsets),
]
