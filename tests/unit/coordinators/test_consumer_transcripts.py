"""Consumer groups (KIP-848) and migrations, told as transcripts: transcripts/consumer/*.txt, in the language of
test_transcripts.py and these lines besides:

    settings consumer.NAME=VALUE                 of ConsumerSettings; `consumer.policy` is 1 upgrade + 2 downgrade
    TIME ms  topics t=4 u=2                      the topics that there are, and their partitions
    TIME ms  WHO  enter topics=t,u regex=.. instance=.. rebalance=.. assignor=..    ConsumerGroupHeartbeat that joins
    TIME ms  WHO  beat [owns] [topics=.. regex=.. epoch=..]    one that goes on; `owns` says what WHO was told last
    TIME ms  WHO  quit [epoch=-2]                one that leaves
    TIME ms  WHO  join topics=t owns=0,1         JoinGroup with a consumer's subscription
    TIME ms  WHO  sync give=A:0+1,B:2            SyncGroup with partitions of t
    TIME ms  WHO  inspect                        ConsumerGroupDescribe

The interval between assignments is 0 unless the settings say otherwise. A response that asks for the next heartbeat before the
configured interval has `next=MS`.
"""

import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from ottla.coordinators.groups import listing
from ottla.coordinators.groups import routing as membership
from ottla.coordinators.groups.classic.embedded import decode_assignment, encode_assignment
from ottla.coordinators.groups.consumer import heartbeat as consumer_heartbeat
from ottla.coordinators.groups.state import Bounded, ConsumerSettings, GroupSettings
from ottla.coordinators.records import CoordinatorRecord
from ottla.metadata.image import Image, PartitionImage, TopicImage
from ottla.protocol import errors
from ottla.protocol.codec import encode
from ottla.protocol.errors import name_of
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from .test_transcripts import Actor, Teller, tell

_INTERVAL_MS = ConsumerSettings().heartbeat_interval_ms.default
TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts" / "consumer").glob("*.txt"))


def image(revision: int, topics: dict[str, int]) -> Image:
    """Metadata with these topics and their numbers of partitions; a topic's id is its name."""
    partition = PartitionImage((0,), (0,), 0, 0)
    topic_images = {
        name: TopicImage(name, name.encode().ljust(16, b"."), (partition,) * count, {})
        for name, count in topics.items()
    }
    by_id = {topic.id: topic for topic in topic_images.values()}
    return Image(revision, "c", 0, MappingProxyType({}), topic_images, by_id)


def numbers(partitions: Any) -> str:
    return "+".join(str(number) for number in sorted(partitions))


def epoch_of(response: Any) -> str:
    """Tell the epoch in the response to a heartbeat, and the interval if it is not the configured one."""
    interval_ms = response.heartbeat_interval_ms
    return f"epoch={response.member_epoch}" + (f" next={interval_ms}" if 0 < interval_ms < _INTERVAL_MS else "")


class ConsumerTeller(Teller):
    """Knows both protocols."""

    def __init__(self, settings: dict[str, int]) -> None:
        super().__init__(settings)
        self.assigned: dict[str, dict[bytes, list[int]]] = {}

    def settings(self, overrides: dict[str, int]) -> GroupSettings:
        mine = {
            name.removeprefix("consumer."): value for name, value in overrides.items() if name.startswith("consumer.")
        }
        others = {name: value for name, value in overrides.items() if not name.startswith("consumer.")}
        policy = mine.pop("policy", 3)
        bounded: dict[str, Any] = {
            name: Bounded(value, value, value)
            for name, value in ({"assignment_interval_ms": 0} | mine).items()
            if name in ("assignment_interval_ms", "session_timeout_ms", "heartbeat_interval_ms")
        }
        plain: dict[str, Any] = {name: value for name, value in mine.items() if name not in bounded}
        consumer = ConsumerSettings(may_upgrade=bool(policy & 1), may_downgrade=bool(policy & 2))
        return super().settings(others)._replace(consumer=consumer._replace(**bounded, **plain))

    def alias(self, member_id: str | None) -> str:
        return member_id if member_id in self.actors else super().alias(member_id)  # consumers name themselves

    def shown(self, assignment: bytes) -> str:
        if not assignment.startswith(b"\0"):
            return assignment.decode()
        assigned = decode_assignment(assignment).assigned_partitions
        return " ".join(f"{part.topic}:{numbers(part.partitions)}" for part in assigned) or "nothing"

    def parts(self, topics: Any) -> str:
        texts = [f"{topic.topic_id.decode().rstrip('.')}:{numbers(topic.partitions)}" for topic in topics]
        return " ".join(texts) or "nothing"

    def record(self, record: CoordinatorRecord) -> str:
        key, value = record.key, record.value
        kind = type(key).__name__
        if not kind.startswith("ConsumerGroup"):
            return super().record(record)
        kind = kind.removeprefix("ConsumerGroup").removesuffix("Key")
        who = self.alias(getattr(key, "member_id", ""))
        fields: Any = value
        name = {
            "Metadata": "epoch",
            "PartitionMetadata": "topics",
            "MemberMetadata": f"member {who}",
            "TargetAssignmentMetadata": "target epoch",
            "TargetAssignmentMember": f"target {who}",
            "CurrentMemberAssignment": f"current {who}",
            "RegularExpression": f"regex {getattr(key, 'regular_expression', '')}",
        }[kind]
        if value is None:
            return f"{name} tombstone"
        if kind == "Metadata":
            return f"{name} {fields.epoch}"
        if kind == "TargetAssignmentMetadata":
            return f"{name} {fields.assignment_epoch}"
        if kind == "TargetAssignmentMember":
            return f"{name} {self.parts(fields.topic_partitions)}"
        if kind == "RegularExpression":
            return f"{name} topics={','.join(fields.topics)}"
        if kind == "MemberMetadata":
            what = [f"topics={','.join(fields.subscribed_topic_names)}"]
            what += [f"regex={fields.subscribed_topic_regex}"] if fields.subscribed_topic_regex else []
            what += [f"instance={fields.instance_id}"] if fields.instance_id else []
            what += ["classic"] if fields.classic_member_metadata else []
            return " ".join([name, *what])
        state = {0: "stable", 1: "unrevoked", 2: "unreleased"}[fields.state]
        text = f"{name} epoch={fields.member_epoch} {state} {self.parts(fields.assigned_partitions)}"
        revoking = fields.partitions_pending_revocation
        return f"{text} gives back {self.parts(revoking)}" if revoking else text

    def response(self, actor: Actor, response: Any) -> str:
        kind = type(response).__name__
        if kind == "ConsumerGroupHeartbeatResponse":
            if response.error_code != errors.NONE:
                return name_of(response.error_code)
            actor.member_id, actor.generation = response.member_id, response.member_epoch
            text = epoch_of(response)
            if response.assignment is None:
                return text
            topics = response.assignment.topic_partitions
            self.assigned[actor.name] = {topic.topic_id: topic.partitions for topic in topics}
            return f"{text} {self.parts(topics)}"
        if hasattr(response, "group_epoch"):
            if response.error_code != errors.NONE:
                return name_of(response.error_code)
            members = " ".join(
                f"{self.alias(member.member_id)}@{member.member_epoch}{'c' if member.member_type == 0 else ''}"
                for member in response.members
            )
            epochs = f"epoch={response.group_epoch}/{response.assignment_epoch}"
            return f"{response.group_state} {epochs} {response.assignor_name} members=[{members}]"
        return super().response(actor, response)

    def play(self, line: str) -> None:
        words = line.split()
        if words[2] != "topics":
            super().play(line)
            return
        self.pass_time(int(words[0]))
        self.lines.append(f"{words[0]:>7} ms  {' '.join(words[2:])}")
        self.told_at = int(words[0])
        topics = {name: int(count) for name, count in (word.split("=") for word in words[3:])}
        cluster = self.world.topology
        self.world.groups.topics_changed(cluster.advance(image(cluster.image.revision + 1, topics)))
        self.tell_log()

    def send(self, actor: Actor, verb: str, fields: dict[str, str]) -> Any:
        if verb in ("enter", "beat", "quit"):
            return self.heartbeat(actor, verb, fields)
        if verb == "inspect":
            return self.world.run(listing.describe_consumer, listing.GroupName("g"))
        if verb == "join" and "topics" in fields:
            owned = [int(number) for number in fields.get("owns", "").split("+") if number]
            subscription = ConsumerProtocolSubscription(
                topics=fields["topics"].split(","),
                owned_partitions=[TopicPartition(topic="t", partitions=owned)] if owned else [],
            )
            actor.instance = fields.get("instance", actor.instance)
            names = fields.get("protocols", "range").split(",")
            request: Any = JoinGroupRequest(
                group_id="g",
                member_id=fields.get("member", actor.member_id),
                group_instance_id=actor.instance,
                protocol_type="consumer",
                session_timeout_ms=int(fields.get("session", 10_000)),
                rebalance_timeout_ms=int(fields.get("rebalance", 10_000)),
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=b"\0\1" + encode(subscription, 1)) for name in names
                ],
            )
            return self.world.run(membership.join, request, int(fields.get("version", 3)), actor.name)
        if verb == "sync" and "give" in fields:
            shares = [word.partition(":")[::2] for word in fields["give"].split(",")]
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=self.actors[name].member_id,
                    assignment=encode_assignment({"t": [int(n) for n in part.split("+")] if part else []}, b"\0\1"),
                )
                for name, part in shares
            ]
            request = SyncGroupRequest(
                group_id="g",
                member_id=actor.member_id,
                group_instance_id=actor.instance,
                generation_id=actor.generation,
                assignments=assignments,
            )
            return self.world.run(membership.sync, request, 4)
        return super().send(actor, verb, fields)

    def heartbeat(self, actor: Actor, verb: str, fields: dict[str, str]) -> Any:
        actor.instance = fields.get("instance", actor.instance)
        topics = fields["topics"].split(",") if fields.get("topics") else None
        regex = fields.get("regex")
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=fields.get("member", actor.member_id or actor.name),
            member_epoch=int(fields.get("epoch", actor.generation)),
            instance_id=actor.instance,
            server_assignor=fields.get("assignor"),
            subscribed_topic_names=[] if "topics" in fields and topics is None else topics,
            subscribed_topic_regex=regex,
        )
        if verb == "enter":
            request.member_epoch = 0
            request.rebalance_timeout_ms = int(fields.get("rebalance", 10_000))
            request.topic_partitions = []
            if topics is None and regex is None:
                request.subscribed_topic_names = ["t"]
        elif verb == "quit":
            request.member_epoch = int(fields.get("epoch", -1))
        elif "owns" in fields:
            owned = self.assigned.get(actor.name, {})
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=owned[topic_id]) for topic_id in owned
            ]
        return self.world.run(consumer_heartbeat.heartbeat, request, 1, actor.name)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    transcript = tell(path.read_text(), ConsumerTeller)
    if os.environ.get("OTTLA_TEST_REWRITE"):
        path.write_text(transcript)
    assert transcript == path.read_text()


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 15
