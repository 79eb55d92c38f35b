"""Share partitions and share sessions as transcripts: transcripts/share_partitions/*.txt hold the actions of members of a group
in one partition, and below each line the responses and the state of the window.

    settings NAME=VALUE ...          of Rules (lock_ms, delivery_limit, max_locks, renews, has_dead_letters), and `sessions`;
                                     the first line
    log FIRST-LAST ...               the batches of the log; `!` behind one that was aborted
    state START FIRST-LAST:STATE/COUNT ...
                                     what the share coordinator knew when the partition was loaded
    TIME ms  WHO  open [CONNECTION]  a session begins (epoch 0)
    TIME ms  WHO  fetch NAME=VALUE ...
                                     records, size (of ranges), batches (how many of the log are read), `exact`
    TIME ms  WHO  ack FIRST-LAST TYPE ...
                                     types by name; several batches are one request
    TIME ms  WHO  epoch N | leave | disconnect
                                     what a request with epoch N is told; the end of a session, or of its connection
    TIME ms  writes  hold | fail | go on
                                     the share coordinator does not answer, refuses, answers; what was held goes first
    TIME ms  begins  OFFSET          the log begins there now
    TIME ms  restart                 only what was written is known
    TIME ms  wait                    only time passes

The window is written as spans: `0-9 acquired 1 A`; `~` in front of one whose change is being written. To rewrite transcripts
after a change of behaviour run with OTTLA_TEST_REWRITE=1, and read the difference before it is committed.
"""

import os
import re
from pathlib import Path

import pytest

from ottla.coordinators.share.acknowledgement import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    DeliveryLimits,
    InvalidAcknowledgement,
)
from ottla.coordinators.share.acquisition import AcquireRequest, LogBatch
from ottla.coordinators.share.partition import SharePartition
from ottla.coordinators.share.session import ShareSessions
from ottla.coordinators.share.state_batches import StateBatch, merge
from ottla.coordinators.share.window import DeadLetters, StateChange
from ottla.protocol.errors import name_of

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts" / "share_partitions").glob("*.txt"))
INDENT = " " * 12
STATES = ("available", "acquired", "acknowledged", "archiving", "archived")
TYPES = {"gap": GAP, "accept": ACCEPT, "release": RELEASE, "reject": REJECT, "renew": RENEW}


def offsets(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


class World:
    """One share partition, and the sessions of its broker."""

    def __init__(self, settings: dict[str, int]) -> None:
        self.sessions = ShareSessions(settings.pop("sessions", 100))
        self.rules = DeliveryLimits(lock_ms=1000, delivery_limit=5, max_locks=100)._replace(**settings)  # type: ignore[arg-type]
        self.log: list[LogBatch] = []
        self.written: list[StateBatch] = []
        self.partition = SharePartition(0)
        self.start = 0
        self.now = 0
        self.mode = "go"
        self.held: list[tuple[str, StateChange]] = []
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(INDENT + text)

    def show(self) -> None:
        """The window as it is now."""
        window = self.partition.window
        spans = [
            f"{'~' if span.change else ''}{span.first}-{span.last} {STATES[span.state]} {span.delivery_count}"
            f"{' ' if span.member else ''}{span.member}"
            for span in window.spans
        ]
        self.say(f"window {window.start_offset}..{window.end_offset} {', '.join(spans)}".rstrip())

    def write(self, who: str, change: StateChange) -> None:
        """A change goes to the share coordinator."""
        if not change.written:
            self.partition.settle(change, written=True)
            self.say(f"{who} <- NONE")
        elif self.mode == "hold":
            self.held.append((who, change))
        else:
            self.settle(who, change)

    def settle(self, who: str, change: StateChange) -> None:
        written = self.mode != "fail"
        if written:
            self.start = max(self.start, self.partition.start_offset)
            merge(self.written, change.written, self.start)
            states = " ".join(f"{one[0]}-{one[1]}:{STATES[one[2]]}/{one[3]}" for one in change.written)
            self.say(f"written from {self.start}, {self.partition.delivery_complete_count} done: {states}")
        dead = self.partition.settle(change, written=written)
        self.say(f"{who} <- {'NONE' if written else 'refused by the share coordinator'}")
        for letters in dead:
            self.write_dead_letters(letters)

    def write_dead_letters(self, letters: DeadLetters) -> None:
        self.say(f"dead letters {letters.first}-{letters.last}, delivered {letters.delivery_count}: {letters.message}")
        self.write("dead letters", self.partition.archive(letters.first, letters.last))

    def play(self, line: str) -> None:
        matched = re.fullmatch(r"\s*(\d+) ms\s+(\S+)\s*(.*)", line)
        assert matched, line
        until, who, rest = int(matched[1]), matched[2], matched[3]
        self.pass_time(until)
        self.lines.append(f"{until:>7} ms  {who} {rest}".rstrip())
        words = rest.split()
        if who == "writes":
            self.mode = words[0]
            while self.held and self.mode != "hold":
                self.settle(*self.held.pop(0))
        elif who == "begins":
            self.partition.skip_below(int(words[0]))
        elif who == "restart":
            self.held.clear()
            self.partition = SharePartition(self.start, self.written)
            for letters in self.partition.pending_dead_letters():
                self.write_dead_letters(letters)
        elif who != "wait":
            getattr(self, words[0])(who, words[1:])
        self.show()

    def pass_time(self, until: int) -> None:
        while (deadline := self.partition.next_deadline()) <= until:
            self.now = max(self.now, deadline)
            self.lines.append(f"{self.now:>7} ms  (locks end)")
            change = self.partition.expire(self.rules, self.now)
            if not change.written:
                break  # they are in a change that is being written
            self.write("locks", change)
        self.now = until

    # What members do.

    def open(self, who: str, words: list[str]) -> None:
        session = self.sessions.begin(("g", who), words[0] if words else who)
        self.say(f"{who} <- {'no room' if session is None else 'epoch 1'}")

    def epoch(self, who: str, words: list[str]) -> None:
        code, session = self.sessions.resume(("g", who), int(words[0]))
        self.say(f"{who} <- {name_of(code) if session is None else f'next {session.epoch}'}")

    def leave(self, who: str, words: list[str]) -> None:
        if self.sessions.end(("g", who)) is None:
            self.say(f"{who} <- SHARE_SESSION_NOT_FOUND")
        else:
            self.write(who, self.partition.release(who, self.rules))

    def disconnect(self, who: str, words: list[str]) -> None:
        for session in self.sessions.end_all_of(who):
            self.write(session.member[1], self.partition.release(session.member[1], self.rules))

    def fetch(self, who: str, words: list[str]) -> None:
        fields = {name: int(value) for name, value in (word.split("=") for word in words if "=" in word)}
        offset = self.partition.next_offset(self.rules)
        if offset is None:
            self.say(f"{who} <- the window is full")
            return
        batches = [batch for batch in self.log if batch.last >= offset][: fields.get("batches", 100)]
        wish = AcquireRequest(fields.get("records", 500), fields.get("size", 500), "exact" in words)
        acquired = self.partition.acquire(who, offset, batches, wish, self.rules, self.now)
        text = ", ".join(f"{first}-{last} the {count}." for first, last, count in acquired)
        self.say(f"{who} <- {text or 'nothing'}")

    def ack(self, who: str, words: list[str]) -> None:
        batches: list[Acknowledgement] = []
        for word in words:
            if word in TYPES:
                batches[-1] = batches[-1]._replace(types=[*batches[-1].types, TYPES[word]])
            else:
                batches.append(Acknowledgement(*offsets(word), []))
        outcome = self.partition.acknowledge(who, batches, self.rules, self.now)
        if isinstance(outcome, InvalidAcknowledgement):
            self.say(f"{who} <- {name_of(outcome.error_code)} {outcome.message}")
        else:
            self.write(who, outcome)


def tell(text: str) -> str:
    """Run a transcript, and return it with the output of this run."""
    world: World | None = None
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#") or not words:
            world = world or World({})
            world.lines.append(line)
        elif words[0] == "settings":
            head = world.lines if world else []
            world = World({name: int(value) for name, value in (word.split("=") for word in words[1:])})
            world.lines = [*head, line]
        elif words[0] in ("log", "state"):
            world = world or World({})
            world.lines.append(line)
            if words[0] == "log":
                world.log = [LogBatch(*offsets(word.rstrip("!")), word.endswith("!")) for word in words[1:]]
            else:
                world.start = int(words[1])
                for word in words[2:]:
                    where, state, count = re.split("[:/]", word)
                    world.written.append(StateBatch(*offsets(where), STATES.index(state), int(count)))
                world.partition = SharePartition(world.start, world.written)
                for letters in world.partition.pending_dead_letters():
                    world.write_dead_letters(letters)
        elif not line.startswith(INDENT) and "(locks end)" not in line:
            assert world is not None
            world.play(line)
    assert world is not None
    return "\n".join(world.lines) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    transcript = tell(path.read_text())
    if os.environ.get("OTTLA_TEST_REWRITE"):
        path.write_text(transcript)
    assert transcript == path.read_text()


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 12
