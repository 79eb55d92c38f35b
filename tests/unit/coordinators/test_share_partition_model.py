"""A share partition against the plainest model of one: a dict from offset to state.

Members fetch, acknowledge what they have (some of it wrongly), die and are too slow; writes to the coordinator are held back
and fail; the broker dies and reads what was written; the group is set back. Throughout: what the partition does, the model
allows, and in the end every record was processed or given up by a member, none after it was accepted.
"""

from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

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
from ottla.coordinators.share.state_batches import StateBatch, merge
from ottla.coordinators.share.window import ACKNOWLEDGED, ACQUIRED, ARCHIVED, ARCHIVING, AVAILABLE, StateChange

MEMBERS = "ABC"
LOCK_MS = 1000
FINAL = (ACKNOWLEDGED, ARCHIVED)


class Record:
    """The model's state of an offset: as `Span`, without pending writes."""

    def __init__(self) -> None:
        self.state, self.count, self.member, self.deadline = AVAILABLE, 0, "", 0

    def seen(self) -> tuple[int, int, str]:
        return self.state, self.count, self.member


class Run:
    """One share partition over one log, with its model."""

    def __init__(self, random: Random) -> None:
        self.random = random
        sizes = [(random.choice((0, 0, 0, 1, 2)), random.randint(1, 12)) for _ in range(random.randint(3, 12))]
        limit, locks, buries = random.randint(2, 6), random.randint(10, 40), random.random() < 0.5
        self.rules = DeliveryLimits(LOCK_MS, limit, locks, has_dead_letters=buries)
        self.log: list[LogBatch] = []
        offset = 0
        for gap, size in sizes:
            self.log.append(LogBatch(offset + gap, offset + gap + size - 1, random.random() < 0.15))
            offset += gap + size
        self.end = offset
        self.aborted = {at for batch in self.log if batch.is_aborted for at in range(batch.first, batch.last + 1)}
        self.exists = {at for batch in self.log for at in range(batch.first, batch.last + 1)}
        self.now = 0
        self.given_up: set[int] = set()
        self.lost: set[int] = set()
        self.begin_at(0)

    def begin_at(self, offset: int) -> None:
        self.model = {at: Record() for at in range(offset, self.end)}
        self.accepted: set[int] = set()
        self.written: list[StateBatch] = []
        self.written_start = offset
        self.pending: list[tuple[StateChange, dict[int, Record]]] = []
        self.partition = SharePartition(offset)

    # What happens.

    def fetch(self, member: str = "", records: int = 0) -> None:
        random = self.random
        member = member or random.choice(MEMBERS)
        records = records or random.randint(1, 15)
        size, exact, n = random.randint(1, 10), random.random() < 0.5, random.randint(1, 4)
        offset = self.partition.next_offset(self.rules)
        if offset is None:
            assert self.partition.end_offset - self.partition.start_offset >= self.rules.max_locks
            return
        batches = [batch for batch in self.log if batch.last >= offset][:n]
        wish = AcquireRequest(records, size, exact)
        acquired = self.partition.acquire(member, offset, batches, wish, self.rules, self.now)
        missing = range(offset, batches[0].first if batches else offset)
        taken = []
        for first, last, count in acquired:
            for at in range(first, last + 1):
                record = self.model[at]
                assert (record.state, record.member) == (AVAILABLE, ""), (at, record.seen())
                assert at not in self.accepted
                assert not any(at in held for _, held in self.pending)
                record.state, record.member, record.deadline = ACQUIRED, member, self.now + LOCK_MS
                record.count += 1
                assert record.count == count <= self.rules.delivery_limit
                taken.append(at)
        assert taken == sorted(set(taken))
        if exact:
            assert len(taken) <= records
        assert not self.aborted & set(taken)
        for span in self.partition.window.spans:
            for at in self.aborted & set(range(span.first, span.last + 1)):
                if span.is_over and self.model[at].state == AVAILABLE:
                    self.model[at].state = ARCHIVED
        for at in self.aborted & set(range(self.partition.start_offset)):
            if at in self.model and self.model[at].state == AVAILABLE:
                self.model[at].state = ARCHIVED
        for at in missing:
            self._archive(at)

    def _archive(self, at: int) -> None:
        record = self.model[at]
        if record.state == AVAILABLE and not any(at in held for _, held in self.pending):
            assert at not in self.exists
            record.state = ARCHIVED

    def acknowledge(self) -> None:
        random = self.random
        member = random.choice(MEMBERS)
        mine = [at for at, record in self.model.items() if record.member == member]
        if not mine:
            return
        first = random.choice(mine)
        last = random.randint(first, min(self.end - 1, first + 14))
        kinds = (GAP, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, RENEW)
        types = random.choices(kinds, k=random.choice((1, last - first + 1)))
        outcome = self.partition.acknowledge(member, [Acknowledgement(first, last, types)], self.rules, self.now)
        whole = range(first, last + 1)
        held = {at: self.model[at] for at in whole if at < self.partition.end_offset and self._counts(at)}
        may = (
            all(at < self.partition.end_offset for at in whole)
            and all(record.state == ACQUIRED and record.member == member for record in held.values())
            and not any(at in frozen for at in whole for _, frozen in self.pending)
        )
        if isinstance(outcome, InvalidAcknowledgement):
            assert not may or any(at not in held for at in whole), (outcome, held)
            return
        assert may
        before: dict[int, Record] = {}
        for at in held:
            kind = types[at - first] if len(types) > 1 else types[0]
            before[at] = self._become(at, kind)
        self.pending.append((outcome, before))

    def _counts(self, at: int) -> bool:
        """Return whether the window holds an offset; it may omit those that are not in the log."""
        if at < self.partition.start_offset:
            return False
        return at in self.exists or any(span.first <= at <= span.last for span in self.partition.window.spans)

    def _become(self, at: int, kind: int) -> Record:
        record = self.model[at]
        before = Record()
        before.__dict__ |= record.__dict__
        record.member = ""
        if kind == ACCEPT:
            record.state = ACKNOWLEDGED
        elif kind == GAP:
            record.state = ARCHIVED
        elif kind == REJECT:
            record.state = ARCHIVING if self.rules.has_dead_letters else ARCHIVED
        elif kind == RELEASE:
            self._free(record)
        else:
            record.member, record.deadline = before.member, self.now + LOCK_MS
        return before

    def _free(self, record: Record) -> None:
        record.member = ""
        if record.count < self.rules.delivery_limit:
            record.state = AVAILABLE
        else:
            record.state = ARCHIVING if self.rules.has_dead_letters else ARCHIVED

    def die(self) -> None:
        member = self.random.choice(MEMBERS)
        change = self.partition.release(member, self.rules)
        before = {}
        for at, record in self.model.items():
            if record.member == member and not any(at in held for _, held in self.pending):
                before[at] = self._become(at, RELEASE)
        self.pending.append((change, before))

    def wait(self) -> None:
        self.now += self.random.randint(1, 2 * LOCK_MS)
        change = self.partition.expire(self.rules, self.now)
        for at, record in self.model.items():
            is_held = any(at in held for _, held in self.pending)
            if record.state == ACQUIRED and record.deadline <= self.now and not is_held:
                self._free(record)
        self.pending.append((change, {}))
        assert self.partition.next_deadline() > self.now or self.pending

    def write(self, works: bool | None = None) -> None:
        if not self.pending:
            return
        works = self.random.random() < 0.7 if works is None else works
        change, before = self.pending.pop(0)
        if works:
            self.written_start = max(self.written_start, self.partition.start_offset)
            merge(self.written, change.written, self.written_start)
        else:
            for at, record in before.items():
                self.model[at].__dict__ |= record.__dict__
        dead = self.partition.settle(change, written=works)
        if works:
            self._note_what_is_done()
        for letters in dead:
            self.pending.append((self._archived(letters.first, letters.last), {}))

    def _archived(self, first: int, last: int) -> StateChange:
        change = self.partition.archive(first, last)
        for at in range(first, last + 1):
            if at in self.model and self.model[at].state == ARCHIVING:
                self.model[at].state = ARCHIVED
        return change

    def _note_what_is_done(self) -> None:
        for at, record in self.model.items():
            if not any(at in held for _, held in self.pending) and record.state == ACKNOWLEDGED:
                self.accepted.add(at)

    def crash(self) -> None:
        """The broker dies; the next one reads what was written."""
        self.pending.clear()
        states = {
            at: (batch.delivery_state, batch.delivery_count)
            for batch in self.written
            for at in range(batch[0], batch[1] + 1)
        }
        self.partition = SharePartition(self.written_start, self.written)
        for at, record in self.model.items():
            if at < self.written_start:
                assert record.state in (ACKNOWLEDGED, ARCHIVED, ARCHIVING)
                continue
            fresh = Record()
            fresh.state, fresh.count = states.get(at, (AVAILABLE, 0))
            assert at not in self.accepted or fresh.state == ACKNOWLEDGED
            assert fresh.count <= record.count
            self.model[at] = fresh
        for letters in self.partition.pending_dead_letters():
            self.pending.append((self._archived(letters.first, letters.last), {}))

    def set_back(self) -> None:
        """AlterShareGroupOffsets: all is delivered once more from there."""
        self.begin_at(self.random.randint(0, self.end))

    # What holds at any time.

    def is_as_the_model_says(self) -> None:
        window = self.partition.window
        seen = {}
        reached = window.start_offset
        for span in window.spans:
            assert reached <= span.first <= span.last
            reached = span.last + 1
            for at in range(span.first, span.last + 1):
                seen[at] = span.state, span.delivery_count, span.member
        assert reached <= window.end_offset
        for at, actual in seen.items():
            expected = self.model[at].seen()
            if at not in self.exists and not expected[1]:
                continue
            if expected[0] in FINAL and actual[0] in FINAL:
                continue  # neighbours that are done with are put together, whatever they were
            assert actual == expected, at
        for at, record in self.model.items():
            if at < window.start_offset:
                assert record.state in FINAL or any(at in held for _, held in self.pending) or at not in self.exists, at
            elif at >= window.end_offset:
                assert record.count == 0, at
            elif at not in seen:
                assert at not in self.exists, at
        assert window.done == sum(actual[0] in FINAL for actual in seen.values())

    def finish(self) -> None:
        """Whatever happened: members that accept what they get come to an end, and have had every record that is left."""
        while self.pending:
            self.write(works=True)
        self.now += 2 * LOCK_MS
        self.wait()
        for _ in range(1000):
            while self.pending:
                self.write(works=True)
            offset = self.partition.next_offset(self.rules)
            if offset is None or offset >= self.end:
                break
            self.fetch("Z", 50)
            for at in sorted(at for at, record in self.model.items() if record.member == "Z"):
                outcome = self.partition.acknowledge("Z", [Acknowledgement(at, at, [ACCEPT])], self.rules, self.now)
                assert not isinstance(outcome, InvalidAcknowledgement)
                self.pending.append((outcome, {at: self._become(at, ACCEPT)}))
        assert self.partition.start_offset == self.partition.end_offset
        assert all(record.state in FINAL for at, record in self.model.items() if at in self.exists)


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=400, deadline=None, derandomize=True, phases=(Phase.generate,))
def test_a_share_partition_does_what_its_model_allows(seed: int) -> None:
    run = Run(Random(seed))
    steps = [run.fetch] * 6 + [run.acknowledge] * 6 + [run.write] * 6 + [run.wait, run.die, run.crash]
    for _ in range(60):
        run.random.choice(steps if run.random.random() < 0.98 else [run.set_back])()
        run.is_as_the_model_says()
    run.finish()
