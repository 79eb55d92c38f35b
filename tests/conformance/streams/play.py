"""Streams groups as their members see them: requests, responses and records, written down as a transcript.

    A enter            heartbeat with epoch 0: the whole description
    A beat epoch=2 owns active 0:0+1
    A quit -1          heartbeat that leaves
    log target A 0:1+3; target epoch 3     records of the group that the broker has written, one line for each action
    A <- epoch=3 active 0:0+1 status [5]

`0:2+3@3` are the tasks 2 and 3 of subtopology 0, assigned at epoch 3. Names that differ in each run (group, topics) are
replaced.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from tests.conformance.conftest import Topic, TopicFactory, Wire
from tests.conformance.consumers import await_coordinator, configure
from tests.conformance.members import new_group, wait_for
from tests.conformance.test_consumer_group_records import Reader

VERSION: Final = 1
STATES: Final = {1: "stable", 2: "unrevoked", 3: "unreleased"}
Tasks = Mapping[str, Iterable[int]]


def info(name: str, partitions: int = 0, factor: int = -1, **configs: str) -> TopicInfo:
    """An internal topic of a topology; `_` in configs stands for `.`."""
    rows = [KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=partitions, replication_factor=factor, topic_configs=rows)


def subtopology(
    subtopology_id: str = "0",
    sources: Sequence[str] = (),
    sinks: Sequence[str] = (),
    repartition: Sequence[TopicInfo] = (),
    changelogs: Sequence[TopicInfo] = (),
    copartition: Sequence[tuple[Sequence[int], Sequence[int]]] = (),
) -> Subtopology:
    """One subtopology; `copartition` are indexes of sources and of repartition topics."""
    return Subtopology(
        subtopology_id=subtopology_id,
        source_topics=list(sources),
        repartition_sink_topics=list(sinks),
        repartition_source_topics=list(repartition),
        state_changelog_topics=list(changelogs),
        copartition_groups=[
            CopartitionGroup(source_topics=list(external), repartition_source_topics=list(internal))
            for external, internal in copartition
        ],
    )


def rows(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=list(numbers)) for name, numbers in tasks.items()]


def shown(tasks: Sequence[Any], *, epochs: bool = False) -> str:
    """Tasks as text: 0:2+3@3 0:1@4."""
    parts = []
    for row in tasks:
        if not row.partitions:
            continue
        if not epochs:
            parts.append(f"{row.subtopology_id}:{'+'.join(map(str, sorted(row.partitions)))}")
            continue
        by_epoch: dict[int, list[int]] = {}
        for partition, epoch in zip(row.partitions, row.assignment_epochs, strict=True):
            by_epoch.setdefault(epoch, []).append(partition)
        for epoch, numbers in sorted(by_epoch.items()):
            parts.append(f"{row.subtopology_id}:{'+'.join(map(str, sorted(numbers)))}@{epoch}")
    return " ".join(sorted(parts))


def roles(active: Sequence[Any], standby: Sequence[Any], warmup: Sequence[Any], *, epochs: bool = False) -> str:
    texts = [shown(active, epochs=epochs)]
    texts += [f"{name} {text}" for name, row in (("standby", standby), ("warmup", warmup)) if (text := shown(row))]
    return " ".join(filter(None, texts)) or "nothing"


class Play:
    """One group, its members, and what is written down of them."""

    def __init__(self, wire: Wire, make_topic: TopicFactory, **configs: str) -> None:
        self.wire = wire
        self._make_topic = make_topic
        self.group_id = new_group(wire)
        self.lines: list[str] = []
        self.aliases: dict[str, str] = {self.group_id: "g"}
        self.names: dict[str, str] = {}
        self.topology: list[Subtopology] = []
        self.topology_epoch = 0
        self.epochs: dict[str, int] = {}
        self.endpoints: dict[str, int] = {}
        defaults = {"streams_initial_rebalance_delay_ms": "0", "streams_assignment_interval_ms": "0"}
        configure(wire, self.group_id, **(defaults | configs))
        self.reader = Reader(wire, self.group_id, self._record)

    # Surroundings.

    def configure(self, **configs: str) -> None:
        configure(self.wire, self.group_id, **configs)

    def topic(self, alias: str, partitions: int) -> str:
        """Create a topic that the transcript calls `alias`; returns its name."""
        topic: Topic = self._make_topic(partitions, name=f"t-{self.group_id}-{alias}")
        await_coordinator(self.wire, (topic.name,))
        self.aliases[topic.name] = alias
        return topic.name

    def name(self, alias: str) -> str:
        """A name for a topic that does not exist yet."""
        if alias not in self.names:
            self.names[alias] = f"s{self.group_id}-{alias}"
            self.aliases[self.names[alias]] = alias
        return self.names[alias]

    def partitions(self, name: str) -> int:
        """Number of partitions of a topic, 0 if it does not exist."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        return len(self.wire.send(request, 12).topics[0].partitions)

    # Members.

    def request(self, member: str, epoch: int, **fields: Any) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=fields.pop("group_id", self.group_id),
            member_id=fields.pop("member_id", member),
            member_epoch=epoch,
            endpoint_information_epoch=fields.pop("endpoints", self.endpoints.get(member, 0)),
            **fields,
        )

    def entering(self, member: str, **fields: Any) -> StreamsGroupHeartbeatRequest:
        """A heartbeat that joins, right in every field but for `fields`."""
        body: dict[str, Any] = {
            "rebalance_timeout_ms": 30_000,
            "topology": Topology(epoch=self.topology_epoch, subtopologies=self.topology),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": f"process-{member}",
        }
        return self.request(member, 0, **(body | fields))

    def enter(self, member: str, **fields: Any) -> Any:
        notes = "".join(f" {name}={_short(value)}" for name, value in fields.items() if name in _NOTED)
        return self._act(member, self.entering(member, **_plain(fields)), f"{member} enter{notes}")

    def beat(
        self,
        member: str,
        epoch: int | None = None,
        owns: Tasks | None = None,
        standby: Tasks | None = None,
        **fields: Any,
    ) -> Any:
        """A heartbeat; `owns` are the active tasks that it reports, None reports nothing."""
        epoch = self.epochs.get(member, 0) if epoch is None else epoch
        owned = ""
        if owns is not None:
            fields |= {"active_tasks": rows(owns), "standby_tasks": rows(standby or {}), "warmup_tasks": []}
            owned = f" owns {roles(fields['active_tasks'], fields['standby_tasks'], [])}"
        notes = "".join(f" {name}={_short(value)}" for name, value in fields.items() if name in _NOTED)
        return self._act(
            member, self.request(member, epoch, **_plain(fields)), f"{member} beat epoch={epoch}{owned}{notes}"
        )

    def quit(self, member: str, epoch: int = -1, **fields: Any) -> Any:
        notes = "".join(f" {name}={_short(value)}" for name, value in fields.items() if name in _NOTED)
        return self._act(member, self.request(member, epoch, **fields), f"{member} quit {epoch}{notes}")

    def settle(self, member: str, reached: Callable[[Any], bool]) -> None:
        """Beat without writing it down until a response is as wanted."""
        count = len(self.lines)

        def come() -> bool:
            answer = self.beat(member)
            kept = self.lines[count:]
            del self.lines[count:]
            if not reached(answer):
                return False
            self.lines += kept
            return True

        wait_for(come)

    def _act(self, member: str, request: StreamsGroupHeartbeatRequest, line: str) -> Any:
        answer = self.wire.send(request, VERSION)
        if answer.error_code == NONE:
            self.epochs[member] = max(answer.member_epoch, 0)
            self.endpoints[member] = answer.endpoint_information_epoch
        self.note(line)
        self.log()
        self.note(f"  {member} <- {self.text_of(answer)}")
        return answer

    def note(self, line: str) -> None:
        for name in sorted(self.aliases, key=len, reverse=True):
            line = line.replace(name, self.aliases[name])
        self.lines.append(line)

    def log(self) -> None:
        """Write down the records since the last action."""
        records = self.reader.records()
        if records:
            self.note(f"  log {'; '.join(records)}")

    def await_log(self) -> None:
        """Wait for records that a timer writes."""
        records: list[str] = []

        def come() -> bool:
            records.extend(self.reader.records())
            return bool(records)

        wait_for(come)
        records.extend(self.reader.records())
        self.note(f"  log {'; '.join(records)}")

    def text_of(self, answer: Any) -> str:
        if answer.error_code != NONE:
            assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("", 0, 0)
            assert answer.status == []
            return f"{name_of(answer.error_code)} {answer.error_message}"
        words = [f"epoch={answer.member_epoch}"]
        if answer.active_tasks is not None:
            for tasks in (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks):
                assert all(row.partitions == sorted(row.partitions) for row in tasks)
            words.append(roles(answer.active_tasks, answer.standby_tasks, answer.warmup_tasks))
        else:
            assert answer.standby_tasks is None
            assert answer.warmup_tasks is None
            words.append("nothing new")
        words += [f"status {status.status_code} '{_in_order(status.status_detail)}'" for status in answer.status]
        if answer.partitions_by_user_endpoint is not None:
            words.append(f"endpoints={answer.endpoint_information_epoch}")
            for row in answer.partitions_by_user_endpoint:
                words.append(
                    f"[{row.user_endpoint.port} {_read(row.active_partitions)} {_read(row.standby_partitions)}]"
                )
        return " ".join(words)

    def state(self) -> Any:
        """Write down the state and the epochs of the group; returns its description."""
        group = self.wire.send(StreamsGroupDescribeRequest(group_ids=[self.group_id]), VERSION).groups[0]
        if group.error_code != NONE:
            self.note(f"  group {name_of(group.error_code)} {group.error_message}")
        else:
            self.note(f"  group {group.group_state} {group.group_epoch}/{group.assignment_epoch}")
        return group

    def _record(self, key: Any, value: Any, version: int) -> str:
        kind = type(key).__name__.removeprefix("StreamsGroup").removesuffix("Key")
        name = _KINDS.get(kind, kind)
        member = f" {key.member_id}" if hasattr(key, "member_id") else ""
        if value is None:
            return f"{name}{member} tombstone"
        assert version == 0 or not kind.startswith(tuple(_KINDS))
        texts: dict[str, Callable[[], str]] = {
            "Metadata": lambda: (
                f"{value.epoch} validated={value.validated_topology_epoch}"
                f" {'hash' if value.metadata_hash else 'no hash'}"
                f" {','.join(f'{row.key}={row.value}' for row in value.last_assignment_configs or ())}"
                f"{_descriptions(value)}"
            ),
            "MemberMetadata": lambda: (
                f"instance={value.instance_id} rack={value.rack_id} client={value.client_id}"
                f" rebalance={value.rebalance_timeout_ms} topology={value.topology_epoch} {value.process_id}"
                f" endpoint={value.user_endpoint and value.user_endpoint.port}"
                f" tags={sorted((tag.key, tag.value) for tag in value.client_tags)}"
            ),
            "TargetAssignmentMetadata": lambda: (
                f"{value.assignment_epoch}{'' if value.assignment_timestamp else ' timestamp=0'}"
            ),
            "TargetAssignmentMember": lambda: roles(value.active_tasks, value.standby_tasks, value.warmup_tasks),
            "CurrentMemberAssignment": lambda: _current(value),
            "Topology": lambda: f"epoch={value.epoch} {' '.join(map(_subtopology, value.subtopologies))}",
        }
        return f"{name}{member} {texts[kind]() if kind in texts else ''}".strip()


_KINDS: Final = {
    "Metadata": "epoch",
    "MemberMetadata": "member",
    "TargetAssignmentMetadata": "target epoch",
    "TargetAssignmentMember": "target",
    "CurrentMemberAssignment": "current",
    "Topology": "topology",
}
_NOTED: Final = (
    "instance_id",
    "process_id",
    "rack_id",
    "user_endpoint",
    "rebalance_timeout_ms",
    "shutdown_application",
    "client_tags",
    "endpoints",
)


def _in_order(text: str) -> str:
    """The names of missing internal topics come out of a hash table in Apache Kafka."""
    begin = "Internal topics are missing: "
    names, separator, more = text.removeprefix(begin).partition(";")
    return begin + ", ".join(sorted(names.split(", "))) + separator + more if text.startswith(begin) else text


def _short(value: Any) -> str:
    return str(value)


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a request: an endpoint is given as its port, tags and offsets as dictionaries."""
    plain = dict(fields)
    if isinstance(plain.get("user_endpoint"), int):
        plain["user_endpoint"] = Endpoint(host="h", port=plain["user_endpoint"])
    if isinstance(plain.get("client_tags"), dict):
        plain["client_tags"] = [KeyValue(key=key, value=text) for key, text in plain["client_tags"].items()]
    for name in ("task_offsets", "task_end_offsets"):
        if isinstance(plain.get(name), dict):
            plain[name] = [
                TaskOffset(subtopology_id=task[0], partition=task[1], offset=offset)
                for task, offset in plain[name].items()
            ]
    return plain


def _read(partitions: Sequence[Any]) -> str:
    texts = sorted(f"{row.topic}:{'+'.join(map(str, sorted(row.partitions)))}" for row in partitions)
    return ",".join(texts) or "-"


def _current(value: Any) -> str:
    text = (
        f"epoch={value.member_epoch} prev={value.previous_member_epoch} {STATES.get(value.state, value.state)} "
        f"{roles(value.active_tasks, value.standby_tasks, value.warmup_tasks, epochs=True)}"
    )
    returned = roles(
        value.active_tasks_pending_revocation,
        value.standby_tasks_pending_revocation,
        value.warmup_tasks_pending_revocation,
        epochs=True,
    )
    return text if returned == "nothing" else f"{text} gives back {returned}"


def _subtopology(row: Any) -> str:
    parts = [f"{row.subtopology_id} reads {','.join(row.source_topics)}"]
    parts += [f"writes {','.join(row.repartition_sink_topics)}"] if row.repartition_sink_topics else []
    parts += [f"repartition {_info(topic)}" for topic in row.repartition_source_topics]
    parts += [f"changelog {_info(topic)}" for topic in row.state_changelog_topics]
    parts += [
        f"copartition {group.source_topics} {group.repartition_source_topics}" for group in row.copartition_groups
    ]
    return f"({' '.join(parts)})"


def _info(row: Any) -> str:
    configs = ",".join(f"{config.key}={config.value}" for config in row.topic_configs)
    return f"{row.name}/{row.partitions}/{row.replication_factor}[{configs}]"


def _descriptions(value: Any) -> str:
    stored, failed = value.stored_description_topology_epoch, value.failed_description_topology_epoch
    return "" if (stored, failed) == (-1, -1) else f" stored={stored} failed={failed}"
