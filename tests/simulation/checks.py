"""Checks of a run: pure functions from recorded histories and final state to violations.

Each check takes plain data and returns the violations that it finds; `tests/simulation/test_checks.py` plants one of each kind.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from .disks import WrittenBatch
from .history import (
    Acknowledged,
    Commit,
    Finished,
    Identity,
    Outcome,
    PartitionKey,
    Read,
    Received,
    Step,
    Transaction,
)
from .world import SECOND_US


class Violation(NamedTuple):
    """Violated check.

    about    texts that occur in the lines of the story that explain it
    at_us    time at which it was noticed, -1 for the end of the run
    """

    check: str
    text: str
    about: tuple[str, ...] = ()
    at_us: int = -1


class Leadership(NamedTuple):
    """Leadership of a partition, as a broker's image had it; `incarnation` identifies the process that leads."""

    topic_id: str
    partition: int
    epoch: int
    leader: int
    incarnation: str


class Election(NamedTuple):
    """Change of a partition's leader in the metadata store.

    is_new      True if the partition was created by this change
    before      leader before, -1 without one
    writer      node that wrote the change, -1 if it is not known
    controller  node that was the controller before the change, -1 without one
    live        nodes that were live before the change
    """

    revision: int
    topic_id: str
    partition: int
    is_new: bool
    before: int
    leader: int
    writer: int
    controller: int
    live: frozenset[int]


class Start(NamedTuple):
    """Start of a broker's process; times are -1 if it has not served requests, or not ended.

    awaited_us  rest of the session of an earlier process with the same id, which the disk does not name: it may still run
    """

    broker: str
    begun_us: int
    serving_us: int = -1
    ended_us: int = -1
    awaited_us: int = 0


class LoadedCoordinator(NamedTuple):
    """Partition of an internal topic that a broker leads at the end; epochs of the loaded state and of the leader."""

    broker: str
    topic: str
    partition: int
    loaded_epoch: int
    leader_epoch: int


class Position(NamedTuple):
    """Place of a record in a final reading."""

    partition: PartitionKey
    offset: int


def _positions(reads: Iterable[Read]) -> dict[str, list[Position]]:
    positions: dict[str, list[Position]] = defaultdict(list)
    for read in reads:
        positions[read.value].append(Position(read.partition, read.offset))
    return positions


def nothing_lost(
    acknowledged: Sequence[Acknowledged], reads: Sequence[Read], uncommitted: frozenset[str] = frozenset()
) -> list[Violation]:
    """Every acknowledged record is at its place, except those of transactions that were not committed (`uncommitted`)."""
    positions = _positions(reads)
    violations = []
    for record in acknowledged:
        if record.value in uncommitted:
            continue
        expected = Position(record.partition, record.offset)
        if expected not in positions.get(record.value, ()):
            elsewhere = ", ".join(f"{where.partition}@{where.offset}" for where in positions.get(record.value, ()))
            text = f"{record.value} was acknowledged at {record.partition}@{record.offset}, and is " + (
                f"at {elsewhere}" if elsewhere else "lost"
            )
            violations.append(Violation("nothing lost", text, (record.value, str(record.partition)), record.at_us))
    return violations


def transactions_end(open_transactions: Mapping[PartitionKey, int], hanging: Container[str]) -> list[Violation]:
    """At rest no transaction is open, except in clusters where one may have lost its coordinator's records (`hanging`)."""
    return [
        Violation(
            "transactions end", f"a transaction is open at {partition} from offset {offset} on", (str(partition),)
        )
        for partition, offset in open_transactions.items()
        if partition.cluster not in hanging
    ]


def nothing_duplicated(reads: Sequence[Read]) -> list[Violation]:
    """No value is in the logs twice, as all producers are idempotent."""
    return [
        Violation(
            "nothing duplicated",
            f"{value} is at {', '.join(f'{where.partition}@{where.offset}' for where in places)}",
            (value,),
        )
        for value, places in _positions(reads).items()
        if len(places) > 1
    ]


def nothing_invented(reads: Sequence[Read], sent: Mapping[str, int]) -> list[Violation]:
    """Every value that is read was sent."""
    return [
        Violation("nothing invented", f"{read.value!r} at {read.partition}@{read.offset} was never sent", (read.value,))
        for read in reads
        if read.value not in sent
    ]


def order_kept(acknowledged: Sequence[Acknowledged]) -> list[Violation]:
    """Records of one producer have increasing offsets in each partition, in the order in which they were sent."""
    violations = []
    newest: dict[tuple[str, PartitionKey], Acknowledged] = {}
    for record in sorted(acknowledged, key=lambda record: (record.producer, record.number)):
        before = newest.get((record.producer, record.partition))
        if before is not None and before.offset >= record.offset:
            text = f"{record.partition}: {before.value}@{before.offset} was sent before {record.value}@{record.offset}"
            violations.append(Violation("order kept", text, (before.value, record.value), record.at_us))
        newest[record.producer, record.partition] = record
    return violations


def one_content(batches: Iterable[WrittenBatch]) -> list[Violation]:
    """Each (topic id, partition, epoch, offset) has one content in all logs ever."""
    first: dict[tuple[str, int, int, int], WrittenBatch] = {}
    ends: dict[tuple[str, int, int], dict[int, WrittenBatch]] = defaultdict(dict)
    violations = []
    for batch in batches:
        known = first.setdefault((batch.topic_id, batch.partition, batch.epoch, batch.base_offset), batch)
        ends[batch.topic_id, batch.partition, batch.epoch][batch.base_offset] = batch
        if (known.content, known.next_offset) != (batch.content, batch.next_offset):
            text = (
                f"{batch.topic_id}-{batch.partition} has two contents at offset {batch.base_offset} of epoch "
                f"{batch.epoch}: written by {known.host} at {known.at_us / SECOND_US:.3f} s and by {batch.host} at "
                f"{batch.at_us / SECOND_US:.3f} s"
            )
            violations.append(Violation("one content", text, (known.host, batch.host), batch.at_us))
    for (topic_id, partition, epoch), its in ends.items():
        for known, batch in pairwise(its[offset] for offset in sorted(its)):
            if known.next_offset > batch.base_offset:
                text = (
                    f"{topic_id}-{partition} has two contents at offset {batch.base_offset} of epoch {epoch}: a batch from "
                    f"{known.base_offset} to {known.next_offset - 1} of {known.host}, and one from there of {batch.host}"
                )
                violations.append(Violation("one content", text, (known.host, batch.host), batch.at_us))
    return violations


def one_leader(leaderships: Iterable[Leadership]) -> list[Violation]:
    """Each epoch of a partition has at most one leader, and one process that leads."""
    first: dict[tuple[str, int, int], Leadership] = {}
    violations = []
    for one in leaderships:
        if one.leader < 0:
            continue
        known = first.setdefault((one.topic_id, one.partition, one.epoch), one)
        if (known.leader, known.incarnation) != (one.leader, one.incarnation):
            text = (
                f"{one.topic_id}-{one.partition} was led in epoch {one.epoch} by node {known.leader} "
                f"({known.incarnation}) and by node {one.leader} ({one.incarnation})"
            )
            violations.append(Violation("one leader", text))
    return violations


def under_repeated_epochs(acknowledged: Iterable[Acknowledged], identities: Iterable[Identity]) -> frozenset[str]:
    """Return the values that were acknowledged to a producer under an epoch which another producer had before.

    After a loss of transaction state a coordinator gives an epoch out again: a batch is then taken for a duplicate.
    """
    holders: dict[tuple[str, int, int], str] = {}
    by_producer: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for one in identities:
        holder = holders.setdefault((one.cluster, one.producer_id, one.epoch), one.producer)
        by_producer[one.producer].append((one.at_us, holder != one.producer))
    values = []
    for record in acknowledged:
        known = [is_repeated for at_us, is_repeated in by_producer[record.producer] if at_us <= record.at_us]
        if known and known[-1]:
            values.append(record.value)
    return frozenset(values)


def with_lost_outcomes(transactions: Iterable[Transaction], lossy: Mapping[PartitionKey, int]) -> frozenset[str]:
    """Return the values of transactions that ended before the coordinator may have lost its records.

    lossy  partitions of the transaction state, and the time in us until which their acknowledgements are not relied on

    The markers of a commit are written after its answer. If the coordinator has lost that decision meanwhile, the partitions
    keep the records, and the next producer of the transactional id aborts them.
    """
    until_us: dict[str, int] = {}
    for partition, lost_us in lossy.items():
        until_us[partition.cluster] = max(until_us.get(partition.cluster, -1), lost_us)
    return frozenset(
        value
        for one in transactions
        if one.cluster in until_us and one.ended_us <= until_us[one.cluster]
        for value in one.values
    )


def producer_ids_unique(identities: Iterable[Identity]) -> list[Violation]:
    """A producer id belongs to one producer, or to one transactional id with another epoch for each of its producers."""
    owners: dict[tuple[str, int], Identity] = {}
    epochs: dict[tuple[str, int, int], Identity] = {}
    violations = []
    for one in identities:
        owner = owners.setdefault((one.cluster, one.producer_id), one)
        holder = epochs.setdefault((one.cluster, one.producer_id, one.epoch), one)
        same_owner = (
            owner.transactional_id == one.transactional_id if one.transactional_id else owner.producer == one.producer
        )
        if not same_owner:
            text = f"producer id {one.producer_id} was given to {owner.producer} and to {one.producer}"
        elif holder.producer != one.producer:
            text = (
                f"epoch {one.epoch} of producer id {one.producer_id} was given to {holder.producer} and {one.producer}"
            )
        else:
            continue
        violations.append(Violation("producer ids unique", text, (owner.producer, one.producer), one.at_us))
    return violations


def transactions_atomic(transactions: Iterable[Transaction], reads: Sequence[Read]) -> list[Violation]:
    """A read_committed consumer sees all records of a committed transaction, none of an aborted one, else all or none."""
    visible = {read.value for read in reads}
    violations = []
    for one in transactions:
        present = [value for value in one.values if value in visible]
        if one.outcome is Outcome.COMMITTED:
            wrong = len(present) < len(one.values)
        elif one.outcome is Outcome.ABORTED:
            wrong = bool(present)
        else:
            wrong = 0 < len(present) < len(one.values)
        if wrong:
            text = f"{one.name} ({one.outcome.value}): {len(present)} of {len(one.values)} records are visible"
            violations.append(Violation("transactions atomic", text, (one.name,), one.begun_us))
    return violations


def transformed_once(
    source: Iterable[str], derived: Iterable[str], prefix: str, waiting: Container[str] = frozenset()
) -> list[Violation]:
    """Each record of the source was transformed once, and nothing else was written; those in `waiting` may not have been
    reached yet.
    """
    counts: dict[str, int] = defaultdict(int)
    for value in derived:
        counts[value.removeprefix(prefix)] += 1
    violations = []
    for value in source:
        count = counts.pop(value, 0)
        if count != 1 and not (count == 0 and value in waiting):
            violations.append(Violation("transformed once", f"{value} was transformed {count} times", (value,)))
    return violations + [
        Violation("transformed once", f"{value} was transformed, but is not in the source", (value,))
        for value in counts
    ]


def commits_advance(commits: Iterable[Commit], final: Mapping[tuple[str, PartitionKey], int]) -> list[Violation]:
    """Committed offsets of a group never go back without a reset, up to those that the group has at the end.

    A commit is compared with those that were acknowledged before it began. `final` maps (group, partition) to an offset; a
    group without an entry is not checked.
    """
    by_key: dict[tuple[str, PartitionKey], list[Commit]] = defaultdict(list)
    for commit in commits:
        by_key[commit.group, commit.partition].append(commit)
    violations = []
    for (group, partition), its in by_key.items():
        highest = -1
        pending = sorted(its, key=lambda commit: commit.done_us)
        earlier = iter(pending)
        following = next(earlier, None)
        for commit in sorted(its, key=lambda commit: commit.begun_us):
            while following is not None and following.done_us < commit.begun_us:
                highest = following.offset if following.is_reset else max(highest, following.offset)
                following = next(earlier, None)
            if commit.offset < highest and not commit.is_reset:
                text = f"{group} committed {commit.offset} in {partition} after {highest}"
                violations.append(Violation("commits advance", text, (commit.member,), commit.begun_us))
        last_reset = max((one.done_us for one in its if one.is_reset), default=-1)
        most = max(one.offset for one in its if one.done_us >= last_reset)
        end = final.get((group, partition), most)
        if end < most:
            text = f"{group} had committed {most} in {partition}, and has {end} at the end"
            violations.append(Violation("commits advance", text, (group, str(partition))))
    return violations


def owned_once(
    ownership: Mapping[tuple[str, str], Sequence[PartitionKey]], subscribed: Mapping[str, Sequence[PartitionKey]]
) -> list[Violation]:
    """At rest each partition that a group has subscribed to has one owner."""
    violations = []
    for group, partitions in subscribed.items():
        for partition in partitions:
            owners = [member for (name, member), its in ownership.items() if name == group and partition in its]
            if len(owners) != 1:
                text = f"{partition} has {len(owners)} owners in {group}: {', '.join(owners) or 'none'}"
                violations.append(Violation("owned once", text, (*owners, str(partition))))
    return violations


def shares_accounted(
    received: Sequence[Received],
    finished: Sequence[Finished],
    expected: Iterable[tuple[PartitionKey, int]],
    most_deliveries: int,
) -> list[Violation]:
    """Every expected record was delivered, none after its acknowledgement was confirmed, none more often than allowed."""
    ended: dict[tuple[str, PartitionKey, int], int] = {}
    for end in finished:
        ended.setdefault((end.group, end.partition, end.offset), end.at_us)
    violations = []
    for one in received:
        end_us = ended.get((one.group, one.partition, one.offset))
        if end_us is not None and one.at_us > end_us:
            text = f"{one.group}: {one.partition}@{one.offset} was delivered to {one.member} after its end"
            violations.append(Violation("shares accounted", text, (one.member, str(one.partition)), one.at_us))
        if one.deliveries > most_deliveries:
            text = (
                f"{one.group}: delivery {one.deliveries} of {one.partition}@{one.offset}, allowed are {most_deliveries}"
            )
            violations.append(Violation("shares accounted", text, (one.member,), one.at_us))
    delivered = {(one.partition, one.offset) for one in received}
    for partition, offset in expected:
        if (partition, offset) not in delivered:
            text = f"{partition}@{offset} was never delivered"
            violations.append(Violation("shares accounted", text, (str(partition),)))
    return violations


def images_equal(store: Mapping[str, str], images: Mapping[str, Mapping[str, str]]) -> list[Violation]:
    """At rest the image of each broker is that of the store; both as texts by key."""
    violations = []
    for broker, image in images.items():
        for key in sorted({*store, *image}):
            if store.get(key) != image.get(key):
                text = f"{broker} has {image.get(key)} for {key}, the store has {store.get(key)}"
                violations.append(Violation("images equal", text, (broker,)))
    return violations


def no_orphans(keys: Iterable[str], topic_ids: Iterable[str], prefix: str = "/partitions/") -> list[Violation]:
    """The store has partition keys of existing topics only."""
    known = set(topic_ids)
    return [
        Violation("no orphans", f"{key} belongs to no topic")
        for key in keys
        if key.startswith(prefix) and key.removeprefix(prefix).split("/")[0] not in known
    ]


def topics_as_answered(
    expected: Mapping[tuple[str, str], bool | None], existing: Mapping[str, Iterable[str]]
) -> list[Violation]:
    """Topics that were created exist, and deleted ones do not; `existing` has the topics of each cluster."""
    names = {cluster: frozenset(topics) for cluster, topics in existing.items()}
    return [
        Violation(
            "topics as answered", f"{cluster}/{topic} {'is missing' if exists else 'exists'} at the end", (topic,)
        )
        for (cluster, topic), exists in expected.items()
        if exists is not None and exists != (topic in names[cluster])
    ]


def stalls_bounded(clients: Iterable[str], steps: Iterable[Step], after_us: int, within_us: int) -> list[Violation]:
    """Every client makes progress within a time after the last fault has ended."""
    active = {step.client for step in steps if after_us < step.at_us <= after_us + within_us}
    return [
        Violation(
            "stalls bounded",
            f"{client} made no progress within {within_us / SECOND_US:.0f} s after the last fault",
            (client,),
            after_us + within_us,
        )
        for client in clients
        if client not in active
    ]


def high_watermarks_monotonic(samples: Iterable[tuple[str, int, int, str, int]]) -> list[Violation]:
    """High watermarks never go back within an epoch; samples are (topic id, partition, epoch, broker, high watermark)."""
    highest: dict[tuple[str, int, int, str], int] = {}
    violations = []
    for topic_id, partition, epoch, broker, offset in samples:
        key = (topic_id, partition, epoch, broker)
        if offset < highest.get(key, -1):
            text = f"{topic_id}-{partition} of {broker}, epoch {epoch}: {offset} after {highest[key]}"
            violations.append(Violation("high watermarks monotonic", text, (broker,)))
        highest[key] = max(offset, highest.get(key, -1))
    return violations


def replicas_equal(
    logs: Mapping[tuple[str, int], Mapping[str, Sequence[tuple[int, ...]]]],
) -> list[Violation]:
    """All replicas of a partition have the same batches below the high watermark, as (offset, next offset, epoch, CRC)."""
    violations = []
    for (topic_id, partition), replicas in logs.items():
        (first, expected), *others = replicas.items()
        for broker, batches in others:
            if list(batches) != list(expected):
                differing = next(
                    (pair for pair in zip(expected, batches, strict=False) if pair[0] != pair[1]),
                    (len(expected), len(batches)),
                )
                text = f"{topic_id}-{partition} differs on {first} and {broker}: {differing[0]} and {differing[1]}"
                violations.append(Violation("replicas equal", text, (first, broker)))
    return violations


def leaders_live(elections: Iterable[Election]) -> list[Violation]:
    """A leader is elected only while it is live: the election compares its registration and its sign of life."""
    return [
        Violation(
            "leaders live",
            f"{one.topic_id}-{one.partition}: node {one.leader} was elected in revision {one.revision}, and was not live",
            (one.topic_id,),
        )
        for one in elections
        if one.leader >= 0 and one.leader not in one.live
    ]


def elected_by_controller(elections: Iterable[Election]) -> list[Violation]:
    """Only the controller replaces a leader, except for a broker that gives up its own leadership."""
    return [
        Violation(
            "elected by the controller",
            f"{one.topic_id}-{one.partition}: node {one.writer} replaced leader {one.before} by {one.leader} in revision "
            f"{one.revision}, when node {one.controller} was the controller",
            (one.topic_id,),
        )
        for one in elections
        if not one.is_new and one.writer >= 0 and one.writer not in (one.controller, one.before)
    ]


def starts_bounded(
    starts: Iterable[Start], disturbed: Sequence[tuple[int, int]], within_us: int, end_us: int
) -> list[Violation]:
    """A broker serves requests within a time after what its start may await, unless a fault (begin, end) was active then."""
    violations = []
    for start in starts:
        limit_us = start.begun_us + start.awaited_us + within_us
        until_us = min((at_us for at_us in (start.serving_us, start.ended_us, end_us) if at_us >= 0), default=end_us)
        if until_us > limit_us and not any(begin < limit_us and end > start.begun_us for begin, end in disturbed):
            allowed_s = (limit_us - start.begun_us) / SECOND_US
            text = f"{start.broker} did not serve requests within {allowed_s:.1f} s after its start"
            violations.append(Violation("starts bounded", text, (start.broker,), start.begun_us))
    return violations


def coordinators_current(loaded: Iterable[LoadedCoordinator]) -> list[Violation]:
    """The state of every coordinator was loaded in the current leader epoch of its partition."""
    return [
        Violation(
            "coordinators current",
            f"{one.broker} has the state of {one.topic}-{one.partition} of epoch {one.loaded_epoch}, and leads it in epoch "
            f"{one.leader_epoch}",
            (one.broker,),
        )
        for one in loaded
        if one.loaded_epoch != one.leader_epoch
    ]


def configs_as_answered(
    possible: Mapping[tuple[str, str, str], Sequence[str]], actual: Mapping[tuple[str, str, str], str]
) -> list[Violation]:
    """Each config has the value that was acknowledged last, or one of unknown outcome; keys are (cluster, topic, config).

    Each config has one writer.
    """
    violations = []
    for (cluster, topic, config), values in possible.items():
        value = actual.get((cluster, topic, config), "")
        if value not in values:
            text = f"{config} of {cluster}/{topic} is {value or 'not set'}, possible are {', '.join(values)}"
            violations.append(Violation("configs as answered", text, (topic,)))
    return violations


def configs_kept(written: Mapping[tuple[str, str], Sequence[Mapping[str, str]]]) -> list[Violation]:
    """A change of one config keeps the others: a change that was planned on an old image sets them back.

    `written` has the configs of a (cluster, topic) after each revision of the store; every request changes one config.
    """
    violations = []
    for (cluster, topic), states in written.items():
        for before, after in pairwise(states):
            changed = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
            if len(changed) > 1:
                text = ", ".join(f"{name} from {before.get(name)} to {after.get(name)}" for name in changed)
                violations.append(Violation("configs kept", f"one change of {cluster}/{topic} set {text}", (topic,)))
    return violations
