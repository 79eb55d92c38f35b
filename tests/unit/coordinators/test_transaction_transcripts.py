"""Transactions as transcripts: transcripts/transactions/*.txt hold requests of producers and, below each line, the responses.

    settings NAME=VALUE ...                      of TransactionSettings, and `version` (transaction.version); the first line
    TIME ms  WHO  init|add|verify|end|describe NAME=VALUE ... TOPIC-PARTITION ...
    TIME ms  WHO  epochs N                       the epochs up to N are used up, as by so many transactions
    TIME ms  markers  written [old]              the markers are written: those requested last, or all requested before
    TIME ms  version  N                          transaction.version is N from now on
    TIME ms  log  fails CODE | works | holds | commits
    TIME ms  restart                             the coordinator knows only its log from now on
    TIME ms  wait                                only time passes

What happens is written as `<-` lines (an answer, when it comes), `log` lines (records that were appended) and `markers` lines
(requests to partitions). Producers of one transactional id (`id=x` by default) use the producer id and the epoch of their own
last response, unless a line states others. To rewrite transcripts after a change of behaviour run with OTTLA_TEST_REWRITE=1,
and read the difference before it is committed.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.transactions.coordinator import on_loaded
from ottla.coordinators.transactions.ending import complete_transaction, end_transaction
from ottla.coordinators.transactions.partitions import PartitionsOf, add_partitions, verify_partitions
from ottla.coordinators.transactions.producers import init_producer_id
from ottla.coordinators.transactions.state import Markers, Transactions, TransactionSettings, decode_record
from ottla.coordinators.transactions.transaction import STATES, record_of
from ottla.protocol import errors
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import name_of
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.transaction_log_record import TransactionLogKey, TransactionLogValue
from ottla.tasks.deferred import Deferred
from tests.queues import unexpected

from .world import MemoryLog, SettledRuntime, VirtualClock

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts" / "transactions").glob("*.txt"))
INDENT = " " * 12
SETTINGS = TransactionSettings(
    abort_interval_ms=10_000,
    expiration_ms=604_800_000,
    removal_interval_ms=3_600_000,
    verifies_partitions=True,
)


class World:
    """One transaction coordinator with one partition."""

    def __init__(self, settings: TransactionSettings, version: int) -> None:
        self.settings = settings
        self.version = version
        self.clock = VirtualClock()
        self.log = MemoryLog()
        self.next_producer_id = 0
        self.sent: list[Markers] = []
        self.start()

    def start(self) -> None:
        """A coordinator that knows what the log says, and nothing else."""
        self.runtime: SettledRuntime[Transactions] = SettledRuntime(
            partitions=1,
            new_state=lambda partition: Transactions(self.settings, lambda: self.version, self._new_producer_id),
            decode=decode_record,
            loaded=on_loaded,
            clock=self.clock,
            send=lambda partition, markers: self.sent.append(markers),
        )
        self.runtime.load(0, self.log)
        while not self.runtime.load_more(0):
            pass

    def _new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1


class Actor:
    def __init__(self, name: str) -> None:
        self.name = name
        self.transactional_id = "x"
        self.producer_id = self.epoch = -1


class Teller:
    """Runs a transcript and rewrites it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        version = settings.pop("version", 2)
        self.world = World(SETTINGS._replace(**settings), version)
        self.actors: dict[str, Actor] = {}
        self.lines: list[str] = []
        self.told_records = 0
        self.told_at = 0
        self.markers: list[Markers] = []

    def say(self, text: str) -> None:
        """Add a line of output, with the time if it differs from that of the line above."""
        now = self.world.clock.now
        self.lines.append(f"{now:>7} ms  {text}" if now != self.told_at else f"{INDENT}{text}")
        self.told_at = now

    def tell_log(self) -> None:
        """Add lines for the records and the markers since the last call."""
        for key, value in self.world.log.records[self.told_records :]:
            record = decode_record(key, value)
            assert record is not None
            self.say(f"log {self.record(record)}")
        self.told_records = len(self.world.log.records)
        for markers in self.world.sent:
            verb = "commit" if markers.commit else "abort"
            own = "" if markers.new_epoch else " of version 1"
            self.say(
                f"markers {verb}{own} {markers.transactional_id} producer={markers.producer_id} epoch={markers.epoch}"
                f" [{named(markers.partitions)}]"
            )
            self.markers.append(markers)
        self.world.sent.clear()

    def record(self, record: CoordinatorRecord) -> str:
        assert isinstance(record.key, TransactionLogKey)
        value = record.value
        if not isinstance(value, TransactionLogValue):
            return f"{record.key.transactional_id} tombstone"
        parts = {(part.topic, index) for part in value.transaction_partitions or () for index in part.partition_ids}
        words = [
            f"v{record.version} {record.key.transactional_id} {STATES[value.transaction_status]}",
            f"producer={value.producer_id} epoch={value.producer_epoch} [{named(parts)}]",
        ]
        if value.previous_producer_id != -1:
            words.append(f"previous={value.previous_producer_id}")
        if value.next_producer_id != -1:
            words.append(f"next={value.next_producer_id}")
        return " ".join(words)

    def heard(self, actor: Actor, answer: Any) -> None:
        if isinstance(answer, dict):
            answer = error_names(answer)
        self.tell_log()
        self.say(f"{actor.name} <- {self.answer(actor, answer)}")

    def answer(self, actor: Actor, answer: Any) -> str:
        if isinstance(answer, (str, dict)):
            return answer if isinstance(answer, str) else " ".join(f"{k}={v}" for k, v in sorted(answer.items()))
        if answer.error_code != errors.NONE:
            return name_of(answer.error_code)
        if answer.producer_id == -1:
            return "NONE"
        actor.producer_id, actor.epoch = answer.producer_id, answer.producer_epoch
        return f"producer={answer.producer_id} epoch={answer.producer_epoch}"

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
        elif who == "version":
            self.world.version = int(rest)
        elif who == "markers":
            self.written(rest)
        elif who != "wait":
            verb, *words = rest.split()
            actor = self.actors.setdefault(who, Actor(who))
            fields = dict(word.split("=") for word in words if "=" in word)
            answer = self.ask(actor, verb, fields, [word for word in words if "=" not in word])
            if isinstance(answer, Deferred):
                answer.then(lambda response: self.heard(actor, response), unexpected)
            else:
                self.heard(actor, answer)
        self.tell_log()

    def written(self, which: str) -> None:
        """Whoever writes markers says that they are all there."""
        old, new = self.markers[:-1], self.markers[-1:]
        for markers in old if which == "written old" else new:
            answer = self.world.runtime.run_on(0, complete_transaction, markers)
            if answer != errors.NONE and not isinstance(answer, Deferred):
                self.say(f"writer <- {name_of(answer)}")

    def log(self, what: str) -> None:
        log = self.world.log
        verb, _, code = what.partition(" ")
        if verb == "commits":
            log.release()
            self.world.runtime.on_committed(0)
        else:
            log.fails_with = getattr(errors, code) if verb == "fails" else errors.NONE
            log.holds = verb == "holds"

    def ask(self, actor: Actor, verb: str, fields: dict[str, str], words: list[str]) -> Any:
        actor.transactional_id = who = fields.get("id", actor.transactional_id)
        producer_id = int(fields.get("producer", actor.producer_id))
        epoch = int(fields.get("epoch", actor.epoch))
        run = self.world.runtime.run_on
        if verb == "init":
            goes_on = "goes" in words or "producer" in fields or "epoch" in fields
            request: Any = InitProducerIdRequest(
                transactional_id=who,
                transaction_timeout_ms=int(fields.get("timeout", 60_000)),
                producer_id=producer_id if goes_on else -1,
                producer_epoch=epoch if goes_on else -1,
            )
            return self.run(init_producer_id, request, int(fields.get("version", 6)))
        if verb == "end":
            request = EndTxnRequest(
                transactional_id=who, producer_id=producer_id, producer_epoch=epoch, committed="commit" in words
            )
            return self.run(end_transaction, request, int(fields.get("version", 5)))
        if verb == "describe":
            state = self.world.runtime.state_of(0)
            transaction = state.transactions.get(who) if state is not None else None
            if transaction is None:
                return "nothing"
            return (
                f"{STATES[transaction.state]} producer={transaction.producer_id} epoch={transaction.epoch}"
                f" last={transaction.last_epoch} [{named(transaction.partitions)}]"
            )
        if verb == "epochs":
            return self.use_up(actor, int(words[0]))
        assert verb in ("add", "verify"), verb
        places = frozenset((topic, int(index)) for topic, _, index in (word.partition("-") for word in words))
        version = int(fields.get("version", 2))
        partitions = PartitionsOf(who, producer_id, epoch, places, version)
        return run(0, add_partitions if verb == "add" else verify_partitions, partitions)

    def use_up(self, actor: Actor, epoch: int) -> str:
        state = self.world.runtime.state_of(0)
        assert state is not None
        transaction = state.transactions[actor.transactional_id]
        now = self.world.clock.wall_ms()
        record = record_of(transaction, state.record_version, now, producer_epoch=epoch)
        self.world.log.append([record.encoded()], None)
        self.world.start()
        actor.epoch = epoch
        return f"epoch={epoch}"

    def run(self, operation: Any, request: Any, version: int) -> Any:
        request.context = RequestContext(version=version, client_id="c", client_host="/h")
        return self.world.runtime.run_on(0, operation, request)


def named(partitions: Any) -> str:
    return " ".join(f"{topic}-{index}" for topic, index in sorted(partitions))


def error_names(codes: Any) -> dict[str, str]:
    return {f"{topic}-{index}": name_of(code) for (topic, index), code in codes.items()}


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
    return bool(re.match(r"\S+ <- |log (?!fails|works|holds|commits)|markers (?!written)", words))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    transcript = tell(text)
    if os.environ.get("OTTLA_TEST_REWRITE"):
        path.write_text(transcript)
    assert transcript == path.read_text()


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 15
