"""The share coordinator as transcripts: transcripts/share_state/*.txt hold requests and, below each of them, the responses.

    settings NAME=VALUE ...                      of ShareSettings; the first line, if any
    TIME ms  topics t=4 u=2                      the topics that there are, and their partitions
    TIME ms  G  initialize t-0 epoch=1 start=5   of group G; likewise the others
    TIME ms  G  read t-0 leader=2
    TIME ms  G  write t-0 epoch=1 leader=2 start=5 complete=3 0-9:2/1,...    batches are first-last:state/count
    TIME ms  G  summarize t-0 | delete t-0
    TIME ms  log  fails CODE | works | holds | commits
    TIME ms  restart [t=4 ...] | wait            topics as they are afterwards, if they are others

`log` lines are records that were appended, `prune` and `reset` lines messages to other components. To rewrite them
after a change of behaviour run with OTTLA_TEST_REWRITE=1, and read the difference before it is committed.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Operation
from ottla.coordinators.share import state
from ottla.coordinators.share.coordinator import locate, on_loaded
from ottla.coordinators.share.records import decode_record
from ottla.coordinators.share.state import Prune, ShareCoordinatorSettings, ShareStates, StateReset, TopicIdsDeleted
from ottla.coordinators.share.state_batches import StateBatch
from ottla.coordinators.topology import Topology
from ottla.protocol import errors
from ottla.protocol.errors import name_of
from ottla.tasks.deferred import Deferred
from tests.queues import unexpected

from .test_consumer_transcripts import image
from .world import MemoryLog, SettledRuntime, VirtualClock

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts" / "share_state").glob("*.txt"))
INDENT = " " * 12


class Teller:
    """Runs a transcript and rewrites it."""

    def __init__(self, settings: dict[str, int]) -> None:
        self.settings = ShareCoordinatorSettings()._replace(**settings)
        self.clock = VirtualClock()
        self.log = MemoryLog()
        self.topology = Topology()
        self.sent: list[Any] = []
        self.lines: list[str] = []
        self.told_records = 0
        self.told_at = 0
        self.start()

    def start(self) -> None:
        """A coordinator that knows what the log says, and nothing else."""
        self.runtime: SettledRuntime[ShareStates] = SettledRuntime(
            partitions=1,
            new_state=lambda partition: ShareStates(self.settings, self.topology),
            decode=decode_record,
            loaded=on_loaded,
            clock=self.clock,
            send=lambda partition, message: self.sent.append(message),
            locate=locate,
        )
        self.runtime.load(0, self.log)
        while not self.runtime.load_more(0):
            pass

    def say(self, text: str) -> None:
        """Add a line of output, with the time if it differs from that of the line above."""
        now = self.clock.now
        self.lines.append(f"{now:>7} ms  {text}" if now != self.told_at else f"{INDENT}{text}")
        self.told_at = now

    def tell_log(self) -> None:
        for key, value in self.log.records[self.told_records :]:
            record = decode_record(key, value)
            assert record is not None
            self.say(f"log {self.record(record)}")
        self.told_records = len(self.log.records)
        for message in self.sent:
            if isinstance(message, Prune):
                self.say(f"prune below {message.offset}")
            else:
                assert isinstance(message, StateReset)
                self.say(f"reset {message.group_id} {self.place(message)}")
        self.sent.clear()

    def place(self, where: Any) -> str:
        return f"{where.topic_id.decode().rstrip('.')}-{where.partition}"

    def batches(self, batches: Any) -> str:
        texts = [
            f"{batch.first_offset}-{batch.last_offset}:{batch.delivery_state}/{batch.delivery_count}"
            for batch in batches
        ]
        return ",".join(texts) or "no batches"

    def record(self, record: CoordinatorRecord) -> str:
        key: Any = record.key
        value: Any = record.value
        where = f"{key.group_id} {self.place(key)}"
        if value is None:
            return f"{where} tombstone"
        text = (
            f"leader={value.leader_epoch} start={value.start_offset} complete={value.delivery_complete_count} "
            f"{self.batches(value.state_batches)}"
        )
        if hasattr(value, "state_epoch"):
            age = value.write_timestamp - value.create_timestamp
            cold = f" after {age} ms" if age else ""
            return f"{where} snapshot {value.snapshot_epoch} epoch={value.state_epoch} {text}{cold}"
        return f"{where} update of {value.snapshot_epoch} {text}"

    def answer(self, answer: Any) -> str:
        if answer.error_code != errors.NONE:
            return name_of(answer.error_code)
        if isinstance(answer, state.StateRead):
            text = f"epoch={answer.state_epoch} start={answer.start_offset} complete={answer.delivery_complete_count}"
            return f"{text} {self.batches(answer.batches)}"
        if isinstance(answer, state.StateSummary):
            epochs = f"epoch={answer.state_epoch} leader={answer.leader_epoch}"
            return f"{epochs} start={answer.start_offset} complete={answer.delivery_complete_count}"
        return "NONE"

    def play(self, line: str) -> None:
        matched = re.fullmatch(r"\s*(\d+) ms\s+(\S+)\s*(.*)", line)
        assert matched, line
        time, who, rest = int(matched[1]), matched[2], matched[3]
        self.pass_time(time)
        self.lines.append(f"{time:>7} ms  {who} {rest}".rstrip())
        self.told_at = time
        if who == "log":
            self.set_log(rest)
        elif who == "topics":
            self.set_topics(counts(rest))
        elif who == "restart":
            if rest:  # topics came and went meanwhile
                self.topology.advance(image(self.topology.image.revision + 1, counts(rest)))
            self.start()
        elif who != "wait":
            answer = self.ask(who, *rest.split())
            if isinstance(answer, Deferred):
                answer.then(lambda response: self.heard(who, response), unexpected)
            else:
                self.heard(who, answer)
        self.tell_log()

    def heard(self, who: str, answer: Any) -> None:
        self.tell_log()
        self.say(f"{who} <- {self.answer(answer)}")

    def pass_time(self, until: int) -> None:
        """Advance step by step, so that what happens is told at its own time."""
        while (deadline := self.runtime.next_deadline()) is not None and deadline <= until:
            self.clock.now = max(self.clock.now, deadline)
            self.runtime.advance(self.clock.now)
            self.tell_log()
        self.clock.now = until

    def set_log(self, what: str) -> None:
        verb, _, code = what.partition(" ")
        if verb == "commits":
            self.log.release()
            self.runtime.on_committed(0)
        else:
            self.log.fails_with = getattr(errors, code) if verb == "fails" else errors.NONE
            self.log.holds = verb == "holds"

    def set_topics(self, topics: dict[str, int]) -> None:
        before = self.topology.image.topics_by_id
        self.topology.advance(image(self.topology.image.revision + 1, topics))
        gone = frozenset(before.keys() - self.topology.image.topics_by_id.keys())
        assert self.runtime.run_on(0, state.forget_topic_ids, TopicIdsDeleted(gone)) == errors.NONE

    def ask(self, group_id: str, verb: str, place: str, *words: str) -> Any:
        topic, _, index = place.rpartition("-")
        where = group_id, topic.encode().ljust(16, b"."), int(index)
        fields = {name: int(value) for name, value in (word.split("=") for word in words if "=" in word)}
        epoch, leader = fields.get("epoch", 0), fields.get("leader", 0)
        start, complete = fields.get("start", -1), fields.get("complete", -1)
        batches = [
            StateBatch(*(int(number) for number in re.split(r"[-:/]", batch)))
            for word in words
            if "=" not in word
            for batch in word.split(",")
        ]
        choices: dict[str, tuple[Operation[Any, Any], Any]] = {
            "initialize": (state.initialize_state, state.InitializeState(*where, epoch, start)),
            "read": (state.read_state, state.ReadState(*where, leader)),
            "write": (state.write_state, state.WriteState(*where, epoch, leader, start, complete, batches)),
            "summarize": (state.summarize_state, state.SummarizeState(*where)),
            "delete": (state.delete_state, state.DeleteState(*where)),
        }
        operation, request = choices[verb]
        return self.runtime.run(state.share_key(*where), operation, request)


def counts(text: str) -> dict[str, int]:
    """Topics and their partitions."""
    return {name: int(count) for name, count in (word.split("=") for word in text.split())}


def tell(text: str) -> str:
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
            teller = teller or Teller(settings)
            teller.play(line)
    assert teller is not None
    return "\n".join(head + teller.lines) + "\n"


def is_output(line: str) -> bool:
    words = re.sub(r"^\s*(\d+ ms)?\s*", "", line)
    return bool(re.match(r"\S+ <- |log (?!fails|works|holds|commits)|prune |reset ", words))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    transcript = tell(path.read_text())
    if os.environ.get("OTTLA_TEST_REWRITE"):
        path.write_text(transcript)
    assert transcript == path.read_text()


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 6
