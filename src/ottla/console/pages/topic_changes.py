"""Changes of topics: create, clone, grow, empty, delete, and their configs."""

from typing import Final

import anyio
from starlette.responses import Response

from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from ottla.client.admin.topics import NewPartitions, NewTopic
from ottla.client.topics import TopicPartition
from ottla.console.clusters import TIMEOUT_S
from ottla.console.commands import configs_words, delete_records_line, topic_regex
from ottla.console.pages.topics import config_rows, describe_topic, offsets_of
from ottla.console.problem import Problem
from ottla.console.visit import Visit, change, integer, page

_MOST_PARTITIONS: Final = 10_000
_LOOKS: Final = 20
_PAUSE_S: Final = 0.1


async def show_create(visit: Visit) -> Response:
    """Show the form of a new topic, filled in with those of `like` (clone)."""
    like, partitions, replicas, configs = visit.text("like"), "", "", ""
    if like:
        described = (await visit.admin.describe_topics([like], timeout=TIMEOUT_S))[like]
        partitions = str(len(described.partitions))
        replicas = str(max((len(row.replicas) for row in described.partitions), default=1))
        own = [row.entry for row in await config_rows(visit, like) if row.is_own]
        configs = "\n".join(f"{entry.name}={entry.value}" for entry in own if entry.value is not None)
    title = f"Clone {like}" if like else "Create a topic"
    return visit.render(
        "topic_create.html", title=title, like=like, partitions=partitions, replicas=replicas, configs=configs
    )


async def create(visit: Visit) -> Response:
    """Create a topic."""
    name = await visit.field("name")
    visit.change = f"create topic {name}"
    if not name:
        raise Problem("A topic needs a name.")
    new = NewTopic(
        name,
        integer(await visit.field("partitions"), "Partitions", -1, 1, _MOST_PARTITIONS),
        integer(await visit.field("replicas"), "Replicas", -1, 1, 100),
        config=_properties(await visit.field("configs")),
    )
    (await visit.admin.create_topics([new], timeout=TIMEOUT_S)).check()
    await _wait_for(visit, name)
    return visit.redirect_with_notice(visit.link(f"/topics/{name}"), f"Topic {name} was created.")


async def _wait_for(visit: Visit, name: str) -> None:
    """Wait until a new topic is in the metadata: brokers of Apache Kafka learn of it after the answer."""
    for _ in range(_LOOKS):
        if name in (await visit.admin.describe_topics([name], timeout=TIMEOUT_S)).successes:
            return
        await anyio.sleep(_PAUSE_S)


def _properties(text: str) -> dict[str, str | None]:
    """Parse configs, one name=value a line. Raises Problem."""
    properties: dict[str, str | None] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise Problem(f"Configs are lines of NAME=VALUE, not {line[:60]!r}.")
        properties[name.strip()] = value.strip()
    return properties


async def show_config_change(visit: Visit) -> Response:
    """Show the form for one config, or, once it has a value, the question whether to change it."""
    topic, name = visit.path("topic"), visit.text("name")
    row = next((row for row in await config_rows(visit, topic) if row.entry.name == name), None)
    if row is None:
        raise Problem(f"Topics have no config {name!r}.", 404)
    back = visit.link(f"/topics/{topic}/configs")
    is_reset = visit.text("reset") == "1"
    if not is_reset and "value" not in visit.request.query_params:
        return visit.render("topic_config.html", title=f"{name} of {topic}", name=topic, row=row, back=back)
    value = visit.text("value")
    words = configs_words({} if is_reset else {name: value}, [name] if is_reset else [])
    text = (
        f"{name} of {topic} is reset from {row.entry.value} to its default{' ' + row.default if row.default else ''}."
        if is_reset
        else f"{name} of {topic} changes from {row.entry.value} to {value}."
    )
    return visit.confirm(
        f"Change {name} of {topic}?",
        text=f"{text} A shorter retention, or another cleanup policy, deletes records.",
        action=visit.link(f"/topics/{topic}/configs"),
        button="Reset" if is_reset else "Change",
        command=visit.command("configs", "--alter", "--entity-type", "topics", "--entity-name", topic, *words),
        cancel=back,
        fields={"name": name, **({"reset": "1"} if is_reset else {"value": value})},
    )


async def change_config(visit: Visit) -> Response:
    """Set or reset one config."""
    topic, name, value = visit.path("topic"), await visit.field("name"), await visit.field("value")
    is_reset = await visit.field("reset") == "1"
    visit.change = f"reset {name} of topic {topic}" if is_reset else f"set {name}={value} of topic {topic}"
    step = ConfigChange(name, operation=ConfigOperation.DELETE) if is_reset else ConfigChange(name, value)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (await visit.admin.incremental_alter_configs({resource: [step]}, timeout=TIMEOUT_S)).check()
    return visit.redirect_with_notice(visit.link(f"/topics/{topic}/configs"), f"{name} of {topic} was changed.")


async def show_grow(visit: Visit) -> Response:
    """Show the form for the new number of partitions, or the question whether to add them."""
    description = await describe_topic(visit)
    name, current = description.name, len(description.partitions)
    total = visit.integer("partitions", 0, 1, _MOST_PARTITIONS)
    if not total:
        return visit.render("topic_grow.html", title=f"Add partitions to {name}", name=name, current=current)
    if total <= current:
        raise Problem(f"{name} has {current} partitions; their number can only grow.")
    return visit.confirm(
        f"Add partitions to {name}?",
        text=f"{name} grows from {current} to {total} partitions. Keys move to other partitions, and the number cannot "
        "be reduced again.",
        action=visit.link(f"/topics/{name}/grow"),
        button="Add partitions",
        command=visit.command("topics", "--alter", "--topic", topic_regex(name), "--partitions", str(total)),
        cancel=visit.link(f"/topics/{name}"),
        fields={"partitions": str(total)},
    )


async def grow(visit: Visit) -> Response:
    """Add partitions."""
    name = visit.path("topic")
    total = integer(await visit.field("partitions"), "Partitions", 0, 1, _MOST_PARTITIONS)
    visit.change = f"grow topic {name} to {total} partitions"
    (await visit.admin.create_partitions([NewPartitions(name, total)], timeout=TIMEOUT_S)).check()
    return visit.redirect_with_notice(visit.link(f"/topics/{name}"), f"{name} has {total} partitions.")


async def show_empty(visit: Visit) -> Response:
    """Ask whether to delete all records."""
    description = await describe_topic(visit)
    name = description.name
    partitions = [TopicPartition(name, row.partition) for row in description.partitions]
    starts, ends = await offsets_of(visit, partitions)
    return visit.confirm(
        f"Empty {name}?",
        text=f"All records of {name} before these offsets are deleted. This cannot be undone.",
        action=visit.link(f"/topics/{name}/empty"),
        button="Delete all records",
        command=delete_records_line(visit.cluster.access, ends),
        cancel=visit.link(f"/topics/{name}"),
        fields={str(partition.partition): str(offset) for partition, offset in ends.items()},
        titles=("Partition", "Start offset", "Delete before", "Records"),
        rows=[
            (part.partition, starts.get(part), ends[part], ends[part] - starts.get(part, 0))
            for part in partitions
            if part in ends
        ],
    )


async def empty(visit: Visit) -> Response:
    """Delete the records before the offsets of the question."""
    name = visit.path("topic")
    visit.change = f"empty topic {name}"
    offsets = {
        TopicPartition(name, int(key)): integer(value, "Offset", 0)
        for key, value in (await visit.form()).items()
        if key.isdecimal()
    }
    (await visit.admin.delete_records(offsets, timeout=TIMEOUT_S)).check()
    return visit.redirect_with_notice(visit.link(f"/topics/{name}"), f"The records of {name} were deleted.")


async def show_delete(visit: Visit) -> Response:
    """Ask whether to delete a topic."""
    description = await describe_topic(visit)
    name = description.name
    return visit.confirm(
        f"Delete {name}?",
        text=f"{name}, its {len(description.partitions)} partitions and all their records are deleted. "
        "This cannot be undone.",
        action=visit.link(f"/topics/{name}/delete"),
        button="Delete the topic",
        command=visit.command("topics", "--delete", "--topic", topic_regex(name)),
        cancel=visit.link(f"/topics/{name}"),
    )


async def delete(visit: Visit) -> Response:
    """Delete a topic."""
    name = visit.path("topic")
    visit.change = f"delete topic {name}"
    (await visit.admin.delete_topics([name], timeout=TIMEOUT_S)).check()
    return visit.redirect_with_notice(visit.link("/topics"), f"Topic {name} was deleted.")


ROUTES = [
    page("/create-topic", show_create),
    change("/create-topic", create),
    page("/topics/{topic}/configs/change", show_config_change),
    change("/topics/{topic}/configs", change_config),
    page("/topics/{topic}/grow", show_grow),
    change("/topics/{topic}/grow", grow),
    page("/topics/{topic}/empty", show_empty),
    change("/topics/{topic}/empty", empty),
    page("/topics/{topic}/delete", show_delete),
    change("/topics/{topic}/delete", delete),
]
