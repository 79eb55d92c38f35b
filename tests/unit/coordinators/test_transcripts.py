"""Classic groups as transcripts: transcripts/*.txt hold requests of members and, below each line, the responses.

    settings NAME=VALUE ...                      of GroupSettings; the first line, if any
    TIME ms  WHO  join|sync|heartbeat|leave|commit|fetch|describe NAME=VALUE ...
    TIME ms  log  fails CODE | works | holds | commits
    TIME ms  restart                             the coordinator knows only its log from now on
    TIME ms  wait                                only time passes

What happens is written as `<-` lines (an answer, when it comes) and `log` lines (records that were appended). To rewrite
transcripts after a change of behaviour run with OTTLA_TEST_REWRITE=1, and read the difference before it is committed.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinators import offsets
from ottla.coordinators.groups import listing
from ottla.coordinators.groups import routing as membership
from ottla.coordinators.groups.records import decode_record
from ottla.coordinators.groups.state import GroupSettings
from ottla.coordinators.records import CoordinatorRecord
from ottla.protocol import errors
from ottla.protocol.errors import name_of
from ottla.protocol.messages.group_metadata_record import GroupMetadataKey, GroupMetadataValue
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.tasks.deferred import Deferred
from tests.queues import unexpected

from .world import World

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
INDENT = " " * 12


class Actor:
    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.instance: str | None = None


class Teller:
    """Runs a transcript and rewrites it."""

    def __init__(self, settings: dict[str, int]) -> None:
        self.world = World(self.settings(settings))
        self.actors: dict[str, Actor] = {}
        self.lines: list[str] = []
        self.told_records = 0
        self.told_at = 0

    def settings(self, overrides: dict[str, Any]) -> GroupSettings:
        return GroupSettings(initial_rebalance_delay_ms=0)._replace(**overrides)

    def say(self, text: str) -> None:
        """Add a line of output, with the time if it differs from that of the line above."""
        now = self.world.clock.now
        self.lines.append(f"{now:>7} ms  {text}" if now != self.told_at else f"{INDENT}{text}")
        self.told_at = now

    def tell_log(self) -> None:
        for key, value in self.world.log.records[self.told_records :]:
            record = decode_record(key, value)
            assert record is not None
            self.say(f"log {self.record(record)}")
        self.told_records = len(self.world.log.records)

    def alias(self, member_id: str | None) -> str:
        if not member_id:
            return "-"
        known = (actor.name for actor in self.actors.values() if actor.member_id == member_id)
        return next(known, member_id[:-37])  # the client id or instance id in front of the uuid

    def record(self, record: CoordinatorRecord) -> str:
        if isinstance(record.key, OffsetCommitKey):
            name = f"offset {record.key.topic}-{record.key.partition}"
            return (
                f"{name} {record.value.offset}" if isinstance(record.value, OffsetCommitValue) else f"{name} tombstone"
            )
        assert isinstance(record.key, GroupMetadataKey)
        group = record.value
        if not isinstance(group, GroupMetadataValue):
            return "group tombstone"
        members = " ".join(
            f"{self.alias(member.member_id)}:{self.shown(member.assignment)}" for member in group.members
        )
        return f"group generation={group.generation} members=[{members}]"

    def shown(self, assignment: bytes) -> str:
        return assignment.decode()

    def heard(self, actor: Actor, response: Any) -> None:
        self.tell_log()
        self.say(f"{actor.name} <- {self.response(actor, response)}")

    def response(self, actor: Actor, response: Any) -> str:
        kind = type(response).__name__
        code = getattr(response, "error_code", errors.NONE)
        if kind == "JoinGroupResponse":
            if code == errors.MEMBER_ID_REQUIRED:
                actor.member_id = response.member_id
            if code != errors.NONE:
                return name_of(code)
            actor.member_id, actor.generation = response.member_id, response.generation_id
            leader = "leader" if response.leader == response.member_id else f"leader={self.alias(response.leader)}"
            members = " ".join(self.alias(member.member_id) for member in response.members)
            skip = " skip assignment" if response.skip_assignment else ""
            return f"generation={response.generation_id} {response.protocol_name} {leader} members=[{members}]{skip}"
        if code != errors.NONE:
            return name_of(code)
        if kind == "SyncGroupResponse":
            return f"assignment={self.shown(response.assignment)}"
        if kind == "LeaveGroupResponse":
            return " ".join(name_of(member.error_code) for member in response.members)
        if kind == "OffsetCommitResponse":
            return " ".join(name_of(part.error_code) for topic in response.topics for part in topic.partitions)
        if kind == "OffsetFetchResponseGroup":
            texts = [
                f"{t.name}-{p.partition_index}:{p.committed_offset}" for t in response.topics for p in t.partitions
            ]
            return " ".join(["offsets", *texts])
        if kind == "DescribedGroup":
            members = " ".join(self.alias(member.member_id) for member in response.members)
            return f"{response.group_state} {response.protocol_type}/{response.protocol_data} members=[{members}]"
        return name_of(code)

    def pass_time(self, until: int) -> None:
        """Advance step by step, so that what happens is told at its own time."""
        world = self.world
        while (deadline := world.runtime.next_deadline()) is not None and deadline <= until:
            world.clock.now = max(world.clock.now, deadline)
            world.runtime.advance(world.clock.now)
            self.tell_log()
        world.clock.now = until

    def play(self, line: str) -> None:
        matched = re.fullmatch(r"\s*(\d+) ms\s+(\S+)\s*(.*)", line)
        assert matched, line
        time, who, rest = int(matched[1]), matched[2], matched[3]
        self.pass_time(time)
        self.lines.append(f"{time:>7} ms  {who} {rest}".rstrip())
        self.told_at = time
        if who == "log":
            self.log(rest)
        elif who == "restart":
            self.world.start()
        elif who != "wait":
            verb, *pairs = rest.split()
            actor = self.actors.setdefault(who, Actor(who))
            answer = self.send(actor, verb, dict(pair.partition("=")[::2] for pair in pairs))
            if isinstance(answer, Deferred):
                answer.then(lambda response: self.heard(actor, response), unexpected)
            else:
                self.heard(actor, answer)
        self.tell_log()

    def log(self, what: str) -> None:
        log = self.world.log
        verb, _, code = what.partition(" ")
        if verb == "commits":
            log.release()
            self.world.runtime.on_committed(0)
        else:
            log.fails_with = getattr(errors, code) if verb == "fails" else errors.NONE
            log.holds = verb == "holds"

    def send(self, actor: Actor, verb: str, fields: dict[str, str]) -> Any:
        run = self.world.run
        member_id = fields.get("member", actor.member_id)
        member_id = self.actors[member_id].member_id if member_id in self.actors else member_id
        generation = int(fields.get("generation", actor.generation))
        actor.instance = fields.get("instance", actor.instance)
        if verb == "join":
            protocols = [word.partition(":")[::2] for word in fields.get("protocols", "range").split(",")]
            request: Any = JoinGroupRequest(
                group_id="g",
                member_id=member_id,
                group_instance_id=actor.instance,
                protocol_type=fields.get("type", "consumer"),
                session_timeout_ms=int(fields.get("session", 10_000)),
                rebalance_timeout_ms=int(fields.get("rebalance", 10_000)),
                protocols=[JoinGroupRequestProtocol(name=name, metadata=data.encode()) for name, data in protocols],
            )
            return run(membership.join, request, int(fields.get("version", 3)), actor.name)
        if verb == "sync":
            shares = [word.partition(":")[::2] for word in fields.get("give", "").split(",") if word]
            request = SyncGroupRequest(
                group_id="g",
                member_id=member_id,
                group_instance_id=actor.instance,
                generation_id=generation,
                assignments=[
                    SyncGroupRequestAssignment(member_id=self.actors[name].member_id, assignment=part.encode())
                    for name, part in shares
                ],
            )
            return run(membership.sync, request, 4)
        if verb == "heartbeat":
            request = HeartbeatRequest(
                group_id="g", member_id=member_id, group_instance_id=actor.instance, generation_id=generation
            )
            return run(membership.heartbeat, request, 4)
        if verb == "leave":
            who = [MemberIdentity(member_id=member_id, group_instance_id=actor.instance)]
            return run(membership.leave, LeaveGroupRequest(group_id="g", members=who), 5)
        if verb == "commit":
            partition = OffsetCommitRequestPartition(
                partition_index=int(fields.get("partition", 0)), committed_offset=int(fields["offset"])
            )
            request = OffsetCommitRequest(
                group_id="g",
                member_id=member_id,
                generation_id_or_member_epoch=generation,
                retention_time_ms=int(fields.get("retention", -1)),
                topics=[OffsetCommitRequestTopic(name=fields.get("topic", "t"), partitions=[partition])],
            )
            return run(offsets.commit, request, int(fields.get("version", 9)))
        if verb == "fetch":
            return run(offsets.fetch, OffsetFetchRequestGroup(group_id="g", topics=None))
        if verb == "describe":
            return run(listing.describe, listing.GroupName("g"))
        assert verb == "delete", verb
        return _Code(self.world.now(listing.delete, listing.GroupName("g")))


class _Code:
    def __init__(self, error_code: int) -> None:
        self.error_code = error_code


def tell(text: str, kind: type[Teller] = Teller) -> str:
    """Run a transcript, and return it with the output of this run."""
    teller: Teller | None = None
    head: list[str] = []
    settings: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            (teller.lines if teller else head).append(line)
        elif line.startswith("settings"):
            head.append(line)
            settings = {name: int(value) for name, value in (pair.split("=") for pair in line.split()[1:])}
        elif not is_output(line):
            teller = teller or kind(settings)
            teller.play(line)
    assert teller is not None
    return "\n".join(head + teller.lines) + "\n"


def is_output(line: str) -> bool:
    content = re.sub(r"^\s*(\d+ ms)?\s*", "", line)
    return bool(re.match(r"\S+ <- |log (?!fails|works|holds|commits)", content))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    transcript = tell(text)
    if os.environ.get("OTTLA_TEST_REWRITE"):
        path.write_text(transcript)
    assert transcript == path.read_text()


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 15
