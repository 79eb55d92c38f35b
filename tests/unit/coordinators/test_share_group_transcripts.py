"""Share groups (KIP-932), told as transcripts: transcripts/share_groups/*.txt, in the language of test_transcripts.py and these
lines besides:

    settings share.NAME=VALUE                    of ShareSettings
    TIME ms  topics t=4 u=2                      the topics that there are, and their partitions
    TIME ms  WHO  enter topics=t,u               ShareGroupHeartbeat that joins
    TIME ms  WHO  beat [topics=.. epoch=..]      one that goes on
    TIME ms  WHO  quit                           one that leaves
    TIME ms  WHO  inspect                        ShareGroupDescribe
    TIME ms  WHO  alter t=0+2                    AlterShareGroupOffsets up to where the share coordinator is asked
    TIME ms  WHO  forget topics=t                DeleteShareGroupOffsets likewise; `forgotten topics=t` when it has been
    TIME ms  shares  done | fail                 the share coordinator has done, or refused, what it was asked last

What the share coordinator is asked is told as `shares` lines. The interval between assignments is 0 unless the settings say
otherwise. A response that asks for the next heartbeat before the configured interval has `next=MS`.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinators.groups import listing
from ottla.coordinators.groups.share import heartbeat as share_heartbeat
from ottla.coordinators.groups.share import offsets as share_offsets
from ottla.coordinators.groups.share.heartbeat import Initialized, InitializeShares
from ottla.coordinators.groups.state import Bounded, GroupSettings, ShareSettings
from ottla.coordinators.records import CoordinatorRecord
from ottla.protocol import errors
from ottla.protocol.errors import name_of
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from .test_consumer_transcripts import epoch_of, image, numbers
from .test_transcripts import Actor, Teller, tell

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts" / "share_groups").glob("*.txt"))


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def name_in(topic_id: bytes) -> str:
    return topic_id.decode().rstrip(".")


class ShareTeller(Teller):
    """Knows share groups."""

    def __init__(self, settings: dict[str, int]) -> None:
        super().__init__(settings)
        self.asked: list[InitializeShares] = []

    def settings(self, overrides: dict[str, int]) -> GroupSettings:
        mine = {name.removeprefix("share."): value for name, value in overrides.items()}
        bounded: dict[str, Any] = {
            name: Bounded(value, value, value)
            for name, value in ({"assignment_interval_ms": 0} | mine).items()
            if name.endswith(("assignment_interval_ms", "session_timeout_ms"))
        }
        plain: dict[str, Any] = {name: value for name, value in mine.items() if name not in bounded}
        return super().settings({})._replace(share=ShareSettings()._replace(**bounded, **plain))

    def alias(self, member_id: str | None) -> str:
        return member_id or "-"

    def parts(self, topics: Any) -> str:
        return " ".join(f"{name_in(topic.topic_id)}:{numbers(topic.partitions)}" for topic in topics) or "nothing"

    def tell_log(self) -> None:
        super().tell_log()
        for message in self.world.sent:
            assert isinstance(message, InitializeShares)
            texts = [
                f"{name_in(topic)}:{'+'.join(f'{index}@{offset}' for index, offset in offsets.items())}"
                for topic, offsets in message.start_offsets.items()
            ]
            self.say(f"shares asked epoch={message.state_epoch} {' '.join(texts)}")
            self.asked.append(message)
        self.world.sent.clear()

    def record(self, record: CoordinatorRecord) -> str:
        key, fields = record.key, record.value
        kind = type(key).__name__.removeprefix("ShareGroup").removesuffix("Key")
        value: Any = fields
        who = getattr(key, "member_id", "")
        name = {
            "Metadata": "epoch",
            "MemberMetadata": f"member {who}",
            "TargetAssignmentMetadata": "target epoch",
            "TargetAssignmentMember": f"target {who}",
            "CurrentMemberAssignment": f"current {who}",
            "StatePartitionMetadata": "state of",
        }[kind]
        if value is None:
            return f"{name} tombstone"
        if kind == "Metadata":
            return f"{name} {value.epoch}"
        if kind == "TargetAssignmentMetadata":
            return f"{name} {value.assignment_epoch}"
        if kind == "TargetAssignmentMember":
            return f"{name} {self.parts(value.topic_partitions)}"
        if kind == "MemberMetadata":
            return f"{name} topics={','.join(value.subscribed_topic_names)}"
        if kind == "CurrentMemberAssignment":
            return f"{name} epoch={value.member_epoch} {self.parts(value.assigned_partitions)}"
        texts = []
        for what, topics in (
            ("initializing", value.initializing_topics),
            ("initialized", value.initialized_topics),
        ):
            texts += [f"{what} {self.parts(topics)}"] if topics else []
        if value.deleting_topics:
            texts.append(f"deleting {','.join(topic.topic_name for topic in value.deleting_topics)}")
        return f"{name} {' '.join(texts) or 'nothing'}"

    def response(self, actor: Actor, response: Any) -> str:
        code = getattr(response, "error_code", response if isinstance(response, int) else errors.NONE)
        if code != errors.NONE or isinstance(response, int):
            return name_of(code)
        kind = type(response).__name__
        if kind == "ShareGroupHeartbeatResponse":
            actor.generation = response.member_epoch
            text = epoch_of(response)
            return text if response.assignment is None else f"{text} {self.parts(response.assignment.topic_partitions)}"
        if kind == "Begun":
            return f"state epoch={response.state_epoch}"
        if kind == "Deleting":
            return " ".join(f"{name_in(topic)}:{numbers(parts)}" for topic, parts in response.partitions.items()) or "-"
        if kind == "_Code":
            return name_of(response.error_code)
        members = " ".join(f"{member.member_id}@{member.member_epoch}" for member in response.members)
        return f"{response.group_state} epoch={response.group_epoch}/{response.assignment_epoch} members=[{members}]"

    def play(self, line: str) -> None:
        matched = re.fullmatch(r"\s*(\d+) ms\s+(topics|shares)\s+(.*)", line)
        if matched is None:
            super().play(line)
            return
        time, what, rest = int(matched[1]), matched[2], matched[3]
        self.pass_time(time)
        self.lines.append(f"{time:>7} ms  {what} {rest}")
        self.told_at = time
        if what == "shares":
            self.answer(done=rest == "done")
        else:
            cluster = self.world.topology
            before = cluster.image.topics_by_id
            topics = {name: int(count) for name, count in (word.split("=") for word in rest.split() if "=" in word)}
            self.world.groups.topics_changed(cluster.advance(image(cluster.image.revision + 1, topics)))
            gone = frozenset(before.keys() - cluster.image.topics_by_id.keys())
            self.world.now(share_offsets.forget_share_topics, share_offsets.ShareTopicsDeleted(gone))
        self.tell_log()

    def answer(self, *, done: bool) -> None:
        message = self.asked.pop()
        named = {topic: (name_in(topic), frozenset(offsets)) for topic, offsets in message.start_offsets.items()}
        outcome = Initialized("g", named if done else {}, {} if done else named)
        assert self.world.now(share_heartbeat.finish_initialization, outcome) == errors.NONE

    def send(self, actor: Actor, verb: str, fields: dict[str, str]) -> Any:
        topics = fields["topics"].split(",") if fields.get("topics") else None
        named = {topic_id(name): name for name in topics or ()}
        if verb == "inspect":
            return self.world.run(listing.describe_share, listing.GroupName("g"))
        if verb == "alter":
            parts = {
                topic_id(name): (name, frozenset(int(index) for index in indexes.split("+")))
                for name, indexes in fields.items()
            }
            return self.world.run(
                share_offsets.begin_alteration, share_offsets.OffsetAlteration("g", parts, names_topic=bool(parts))
            )
        if verb == "forget":
            deletion = share_offsets.Deletion("g", named if topics else None)
            return self.world.run(share_offsets.begin_deletion, deletion)
        if verb == "forgotten":
            return self.world.run(share_offsets.finish_deletion, share_offsets.Deleted("g", frozenset(named)))
        if verb not in ("enter", "beat", "quit"):
            return super().send(actor, verb, fields)
        epoch = {"enter": 0, "quit": -1}.get(verb, actor.generation)
        request = ShareGroupHeartbeatRequest(
            group_id="g",
            member_id=actor.name,
            member_epoch=int(fields.get("epoch", epoch)),
            subscribed_topic_names=[] if "topics" in fields and topics is None else topics,
        )
        if verb == "enter" and topics is None:
            request.subscribed_topic_names = ["t"]
        return self.world.run(share_heartbeat.heartbeat, request, 1, actor.name)


def is_told(line: str) -> bool:
    """Return whether a line is a request to the share coordinator, which is output, not input."""
    return bool(re.match(r"\s*(\d+ ms)?\s*shares asked ", line))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    played = "\n".join(line for line in path.read_text().splitlines() if not is_told(line))
    transcript = tell(played, ShareTeller)
    if os.environ.get("OTTLA_TEST_REWRITE"):
        path.write_text(transcript)
    assert transcript == path.read_text()


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 8
