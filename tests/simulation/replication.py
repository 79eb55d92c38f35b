"""Observation of replicas during a run: every revision of the metadata store, and samples of leaders, for the checks.

What is committed is what a leader's high watermark has passed. Every leader that was elected cleanly must have all of it in its
log. Two kinds of elections may lose it, as in Kafka, and are recorded as losses: an unclean election, and that of a replica
which has lost its page cache while it was the last member of the ISR.
"""

import random
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.metadata.changes.reassignment import is_reassigned
from ottla.metadata.image import EMPTY, NO_LEADER, Image, PartitionImage, TopicImage
from ottla.metadata.image.deltas import apply_entries
from ottla.replication.partition import Partition

from .applications import HASTY
from .brokers import SimulatedBroker
from .checks import Leadership, Violation
from .clean_stops import CleanStops
from .damage import Damage, DamagedLogs
from .disks import HostStore
from .metadata import Revision
from .reassignments import completed_early
from .replaced_disks import CHECK as REPLACED
from .replaced_disks import ReplacedDisks
from .world import MS_US, SECOND_US, World

_HEADER: Final = struct.Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta: the first fields of a record batch."""
_PREFIX: Final = 12
_CLEANUP: Final = "cleanup.policy"
_LOOK_US: Final = MS_US
_LOOKED_AT_US: Final = 20 * SECOND_US
_LATE_US: Final = 2 * SECOND_US
"""Time after a loss in which acknowledgements of lost records may still arrive."""
_LATE_UNCLEAN_US: Final = 20 * SECOND_US
"""The same after an unclean election: the leader before it may be cut off, and go on."""
_FROM_ELR: Final = "from the ELR"
_MOST_CHANGES: Final = 8
"""Number of changes of an ISR in one leader epoch that are too many for one second, unless brokers come or go half as often."""
Place = tuple[str, int]
"""Topic id and index of a partition."""


class LogBatch(NamedTuple):
    """Batch in a log; `content` is its CRC."""

    base_offset: int
    next_offset: int
    epoch: int
    content: int


class Loss(NamedTuple):
    """Election after which committed records may be missing; acknowledgements until `until_us` are not relied on."""

    topic_id: str
    partition: int
    leader_epoch: int
    until_us: int


class _Cursor:
    """Place in the log of a leader up to which its batches were read."""

    __slots__ = ("count", "position", "segment")

    def __init__(self) -> None:
        self.segment: Path | None = None
        self.position = 0
        self.count = 0


def batches_from(store: HostStore, directory: Path, cursor: _Cursor, limit: int) -> Iterator[LogBatch]:
    """Read the batches of a log below the offset `limit` that come after `cursor`, which is moved. The disk may fail meanwhile:
    the bytes are read past it.
    """
    names = sorted(name for name in store.names(directory) if name.endswith(".log"))
    for path in (directory / name for name in names):
        if cursor.segment is not None and path.name < cursor.segment.name:
            continue
        if cursor.segment is None or path.name != cursor.segment.name:
            cursor.segment, cursor.position = path, 0
        data = store.content(path).data
        while cursor.position + _HEADER.size <= len(data):
            base, length, epoch, _, crc, _, delta = _HEADER.unpack_from(data, cursor.position)
            if base + delta >= limit:
                return
            if length <= 0 or cursor.position + _PREFIX + length > len(data):
                break
            cursor.position += _PREFIX + length
            cursor.count += 1
            yield LogBatch(base, base + delta + 1, epoch, crc)


class Replication:
    """Observer of one cluster.

    losses      elections after which committed records may be missing
    violations  of the checks that are made during the run
    stops       observer of clean stops
    damaged     logs with overwritten bytes
    disks       disks that were replaced
    """

    def __init__(self, world: World, brokers: Sequence[SimulatedBroker]) -> None:
        self.losses: list[Loss] = []
        self.violations: list[Violation] = []
        self.stops = CleanStops(world, brokers)
        self._world = world
        self._brokers = {broker.node_id: broker for broker in brokers}
        self._image = EMPTY
        self._committed: dict[Place, list[tuple[LogBatch, int]]] = {}
        """Committed batches, and the leader epoch in which each was seen so."""
        self._ends: dict[Place, tuple[int, int]] = {}
        """Largest high watermark seen of each partition, and its leader epoch."""
        self._looks: dict[Leadership, tuple[int, int]] = {}
        """High watermark of each leader and partition epoch at the last look."""
        self._cursors: dict[tuple[Leadership, str], _Cursor] = {}
        self._leaders: dict[tuple[str, int, int], tuple[int, int]] = {}
        """Leader and its broker epoch by partition and leader epoch."""
        self._claims: dict[Place, dict[tuple[int, int], tuple[str, int]]] = {}
        """High watermarks of all replicas with the epoch of the last record below: broker, and time of the first sight."""
        self._claimed: dict[tuple[str, Place], int] = {}
        self._changes: dict[tuple[Place, int], deque[int]] = {}
        """Times of the last changes of the ISR by partition and leader epoch."""
        self._memberships: deque[int] = deque(maxlen=_MOST_CHANGES)
        """Times at which brokers last became live, or were fenced."""
        self._single: dict[Place, tuple[int, int]] = {}
        """Last broker that was the only replica of a partition, and its broker epoch then."""
        self._tainted: dict[Place, set[int]] = {}
        """Replicas in the ISR or ELR, and last known leaders, that have lost their page cache."""
        self._without_power: dict[int, int] = {}
        """Broker epochs of those that have lost their page cache. Until it registers again, a broker may still join an ISR."""
        self.damaged = DamagedLogs(world, self._brokers)
        self.disks = ReplacedDisks(world, self._brokers)

    @property
    def nodes(self) -> list[int]:
        """Return the node ids of the brokers."""
        return list(self._brokers)

    def _add_violation(self, check: str, text: str, *about: str) -> None:
        self._world.tell("checks", f"{check}: {text}")
        self.violations.append(Violation(check, text, about, self._world.now_us))

    # -- disks --

    def lost_page_cache(self, node_id: int) -> None:
        """Note that a broker has lost what it had not flushed."""
        registered = self._image.registered.get(node_id)
        self._without_power[node_id] = -1 if registered is None else registered.epoch
        for topic in self._image.topics.values():
            for index, partition in enumerate(topic.partitions):
                if node_id in (*partition.isr, *partition.elr, partition.last_known_leader):
                    self._tainted.setdefault((topic.id.hex(), index), set()).add(node_id)

    def may_replace_disk(self, broker: SimulatedBroker) -> bool:
        """Return True if other replicas in sync have all that is on the disk of a broker."""
        return self.disks.may_replace(self._image, broker.node_id, self._tainted)

    def replace_disk(self, broker: SimulatedBroker, directory: Path | None = None) -> None:
        """Replace the disk of a broker, or one of its log directories, by an empty one."""
        self.disks.replace(self._image, broker, directory)
        self.lost_page_cache(broker.node_id)

    def restore_disk(self, broker: SimulatedBroker, old: object) -> None:
        """Replace the disk of a broker by an old copy."""
        self.disks.restore(self._image, broker, old)
        self.lost_page_cache(broker.node_id)

    def elect_after_loss(self) -> None:
        """Elect leaders uncleanly where a replaced disk had the newest records."""
        self.disks.elect(self._image)

    def damage_log(self, chance: random.Random) -> Damage | None:
        """Damage the log of a replica, and look at the partition often until it is repaired."""
        damage = self.damaged.damage(self._image, self._tainted, chance)
        if damage is not None:
            self._look_at(damage, self._world.now_us + _LOOKED_AT_US)
        return damage

    def _look_at(self, damage: Damage, until_us: int) -> None:
        """Compare the members of the ISR with the leader: a member that has cut its log is not one for long."""
        topic, index = damage.topic, damage.place[1]
        state = self._image.partition(bytes.fromhex(damage.place[0]), index)
        broker = None if state is None else self._brokers.get(state.leader)
        if state is not None and broker is not None and broker.server is not None and broker.is_serving:
            partition = broker.server.broker.replicas.find(topic, index)
            if partition is not None:
                self._compare_members(broker, partition, state)
        if self._world.now_us < until_us:
            self._world.call_after(_LOOK_US, lambda: self._look_at(damage, until_us))

    # -- metadata --

    def applied(self, revision: Revision) -> None:
        """Look at a new revision of the store."""
        delta = apply_entries(self._image, revision.number, revision.entries)
        before, self._image = self._image, delta.image
        self.stops.applied(delta)
        if delta.membership:
            self._memberships.append(self._world.now_us)
        for topic in delta.changed:
            known = before.topics_by_id.get(topic.id)
            for index, new in enumerate(topic.partitions):
                is_old = known is not None and index < len(known.partitions)
                self._compare(
                    topic, index, known.partitions[index] if known is not None and is_old else None, new, before
                )
        for name, indexes in delta.moved.items():
            topic, known = delta.image.topics[name], before.topics[name]
            for index in indexes:
                self._compare(topic, index, known.partitions[index], topic.partitions[index], before)
        for node in sorted(delta.image.live.keys() - before.live.keys()):
            self._became_live(node)
        self.damaged.applied(self._image, self._tainted)

    def _compare(
        self, topic: TopicImage, index: int, old: PartitionImage | None, new: PartitionImage, before: Image
    ) -> None:
        place = topic.id.hex(), index
        if old is not None and len(new.isr) > len(old.isr):
            self._grown(topic, index, old, new)
            self._taint_new_members(place, set(new.isr) - set(old.isr))
        if old is not None and set(old.isr) - set(new.isr):
            self._world.count("ISR: shrunk")
        if old is not None and set(old.isr) != set(new.isr):
            self._changed(topic, index, new)
        if old is not None and is_reassigned(old) and not is_reassigned(new):
            self._world.count("reassignments ended")
        if old is not None and completed_early(old, new, allows_unclean=topic.name == HASTY):
            text = f"{topic.name}-{index}: from {old} to {new}"
            self._add_violation("reassigned in sync", text, f"{topic.name}-{index}")
        self._lead(topic, index, new)
        if len(new.replicas) == 1 and (registered := self._image.registered.get(new.replicas[0])) is not None:
            self._single[place] = new.replicas[0], registered.epoch
        if old is not None and new.leader_epoch != old.leader_epoch:
            kind = _kind(old, new, before)
            self._world.count(f"election: {kind}")
            # A member of the ELR that stopped uncleanly leaves it: whoever is elected from it has all that was committed.
            tainted = kind != _FROM_ELR and new.leader in self._tainted.get(place, ())
            tainted = tainted or new.leader in self.disks.lost(place)
            if kind == "unclean" or tainted:
                late_us = _LATE_UNCLEAN_US if kind == "unclean" else _LATE_US
                self._world.tell("checks", f"{topic.name}-{index} may lose records in epoch {new.leader_epoch}: {kind}")
                self.losses.append(Loss(*place, new.leader_epoch, self._world.now_us + late_us))
        violation = None if old is None else self.disks.changed(topic, index, old, new, self._image)
        if violation is not None:
            self._add_violation(REPLACED, violation, f"{topic.name}-{index}")
        if place in self._tainted:
            self._tainted[place] &= {*new.isr, *new.elr, new.last_known_leader}

    def _taint_new_members(self, place: Place, nodes: set[int]) -> None:
        for node in nodes:
            registered = self._image.registered.get(node)
            if registered is not None and self._without_power.get(node) == registered.epoch:
                self._tainted.setdefault(place, set()).add(node)

    def _lead(self, topic: TopicImage, index: int, new: PartitionImage) -> None:
        if new.leader == NO_LEADER:
            return
        key = topic.id.hex(), index, new.leader_epoch
        node = self._image.registered.get(new.leader)
        known = self._leaders.setdefault(key, (new.leader, 0 if node is None else node.epoch))
        if known[0] != new.leader:
            text = f"{topic.name}-{index}: nodes {known[0]} and {new.leader} are leaders of epoch {new.leader_epoch}"
            self._add_violation("one leader", text, topic.name)

    def _changed(self, topic: TopicImage, index: int, new: PartitionImage) -> None:
        """A replica is not added and removed again and again, without a broker that comes or goes half as often."""
        now_us, place = self._world.now_us, (topic.id.hex(), index)
        times = self._changes.setdefault((place, new.leader_epoch), deque(maxlen=_MOST_CHANGES))
        times.append(now_us)
        if len(times) < _MOST_CHANGES or now_us - times[0] >= SECOND_US:
            return
        if sum(at_us >= times[0] for at_us in self._memberships) < _MOST_CHANGES // 2:
            times.clear()
            text = f"{topic.name}-{index}: the ISR has changed {_MOST_CHANGES} times in a second, to {new.isr} at last"
            self._add_violation("ISR settled", text, topic.name)

    def _grown(self, topic: TopicImage, index: int, old: PartitionImage, new: PartitionImage) -> None:
        """Compare the registration of a new member of the ISR with that of the fetches for which it joined."""
        self._world.count("ISR: grown")
        leader = self._brokers.get(new.leader)
        if leader is None or leader.server is None or not leader.is_serving:
            return  # a process that has ended meanwhile wrote it
        partition = leader.server.broker.replicas.find(topic.name, index)
        leadership = None if partition is None else partition.leadership
        for node in set(new.isr) - set(old.isr):
            registered = self._image.registered.get(node)
            if node not in self._image.live or registered is None:
                self._add_violation(
                    "ISR registered", f"{topic.name}-{index}: {node} joined the ISR, and is not live", topic.name
                )
            elif leadership is not None and leadership.epoch == new.leader_epoch and node in leadership.followers:
                follower = leadership.followers[node]
                if 0 <= follower.broker_epoch != registered.epoch:
                    text = (
                        f"{topic.name}-{index}: {node} joined the ISR for fetches of broker epoch {follower.broker_epoch}, "
                        f"and is registered with {registered.epoch}"
                    )
                    self._add_violation("ISR registered", text, topic.name)

    def _became_live(self, node: int) -> None:
        """Look for partitions that a broker leads in an epoch of its earlier incarnation, or is in the ISR of with a log that
        may have lost records.
        """
        broker, registered = self._brokers.get(node), self._image.registered.get(node)
        if registered is None:
            return
        for topic in self._image.topics.values():
            for index, partition in enumerate(topic.partitions):
                led = self._leaders.get((topic.id.hex(), index, partition.leader_epoch))
                if led is not None and led[0] == node and partition.leader == node and led[1] != registered.epoch:
                    # It may have been elected between its registration and its sign of life.
                    text = (
                        f"{topic.name}-{index}: node {node} leads epoch {partition.leader_epoch} with broker epochs {led[1]} "
                        f"and {registered.epoch}"
                    )
                    self._add_violation("one leader", text, topic.name)
                has_restarted = broker is not None and not broker.was_stopped and broker.live_epoch != registered.epoch
                if has_restarted and node in partition.isr and len(partition.isr) > 1:
                    text = f"{topic.name}-{index}: node {node} is in the ISR {partition.isr} after an unclean stop"
                    self._add_violation("ISR registered", text, topic.name)
                # A single replica has all records that are left, and leads again whatever it has lost, also if a reassignment
                # adds another one before it is live.
                is_single = len(partition.replicas) == 1 or self._single.get((topic.id.hex(), index)) == (
                    node,
                    registered.epoch,
                )
                if has_restarted and node in partition.elr and not is_single:
                    text = f"{topic.name}-{index}: node {node} is in the ELR {partition.elr} after an unclean stop"
                    self._add_violation("ELR registered", text, topic.name)
        for text in self.disks.became_live(node, self._image):
            self._add_violation(REPLACED, text, f"b{node}")
        if broker is not None:
            broker.live_epoch = registered.epoch

    # -- samples --

    def claim(self, broker: SimulatedBroker, partition: Partition) -> None:
        """Note what a replica, leader or follower, takes for committed."""
        log, place = partition.log, _place(partition)
        offset = log.high_watermark
        if self._claimed.get((broker.name, place)) != offset and offset > log.start_offset:
            self._claimed[broker.name, place] = offset
            claims = self._claims.setdefault(place, {})
            claims.setdefault((offset, log.epochs.epoch_at(offset - 1)), (broker.name, self._world.now_us))

    def claim_all(self, broker: SimulatedBroker) -> None:
        """Note what all replicas of a broker take for committed."""
        if broker.server is not None:
            for partition in broker.server.broker.replicas.all():
                self.claim(broker, partition)

    def compare_claims(self) -> None:
        """At rest the log of each leader has all that any replica took for committed."""
        for place, claims in self._claims.items():
            state = self._image.partition(bytes.fromhex(place[0]), place[1])
            leader = None if state is None else self._brokers.get(state.leader)
            if leader is None or leader.server is None:
                continue
            topic = self._image.topics_by_id[bytes.fromhex(place[0])].name
            partition = leader.server.broker.replicas.find(topic, place[1])
            if partition is None:
                continue
            log = partition.log
            for (offset, epoch), (broker, at_us) in claims.items():
                final = log.epochs.epoch_at(offset - 1) if offset <= log.end_offset else -1
                if final != epoch and offset > log.start_offset and not self._may_lack(place, epoch, log.epochs.latest):
                    text = (
                        f"{topic}-{place[1]}: offset {offset - 1} of epoch {epoch} was below the high watermark of {broker} "
                        f"at {at_us / SECOND_US:.3f} s, and is of epoch {final} at the end"
                    )
                    about = (broker, f"{topic}-{place[1]}")
                    self.violations.append(Violation("high watermark final", text, about, at_us))

    def sample(self, broker: SimulatedBroker, partition: Partition, leadership: Leadership) -> None:
        """Look at a partition that a broker leads."""
        state = self._image.partition(partition.topic_id, partition.index)
        if state is None:
            return
        look = partition.log.high_watermark, state.epoch
        if self._looks.get(leadership) == look:
            return
        self._looks[leadership] = look
        self._compare_members(broker, partition, state)
        place = partition.topic_id.hex(), partition.index
        if self.damaged.is_damaged(broker.node_id, place):
            return  # its bytes cannot be compared; other replicas in sync have them
        if partition.log.config.is_compacted:
            self._compare_end(broker, partition, place, leadership)
        else:
            self._compare_content(broker, partition, place, leadership)

    def _compare_members(self, broker: SimulatedBroker, partition: Partition, state: PartitionImage) -> None:
        """The high watermark of a leader is not above the log end of any member of ISR or ELR."""
        if (state.leader, state.leader_epoch) != (broker.node_id, partition.leader_epoch):
            return
        for node in (*state.isr, *state.elr):
            other = self._brokers[node]
            if other.server is None or not other.is_serving or node in self._tainted.get(_place(partition), ()):
                continue
            replica = other.server.broker.replicas.find(partition.topic, partition.index)
            if replica is None or replica.topic_id != partition.topic_id or other.is_damaged:
                continue
            if replica.log.end_offset < partition.log.high_watermark:
                text = (
                    f"{partition.topic}-{partition.index}: high watermark {partition.log.high_watermark} of {broker.name} in "
                    f"epoch {partition.leader_epoch} is above the log end {replica.log.end_offset} of {other.name}, a member "
                    "of ISR or ELR"
                )
                self._add_violation("high watermark replicated", text, broker.name, other.name)

    def _may_lack(self, place: Place, seen_epoch: int, epoch: int) -> bool:
        return any(
            (loss.topic_id, loss.partition) == place and seen_epoch < loss.leader_epoch <= epoch for loss in self.losses
        )

    def _compare_end(self, broker: SimulatedBroker, partition: Partition, place: Place, leadership: Leadership) -> None:
        log = partition.log
        end, seen = self._ends.get(place, (0, -1))
        is_new = (leadership, "") not in self._cursors
        self._cursors[leadership, ""] = _Cursor()
        if (
            is_new
            and log.end_offset < end
            and seen < leadership.epoch
            and not self._may_lack(place, seen, leadership.epoch)
        ):
            self._lacks(broker, partition, f"ends at {log.end_offset}, committed was {end} in epoch {seen}")
        if log.high_watermark >= end:
            self._ends[place] = log.high_watermark, leadership.epoch

    def _lacks(self, broker: SimulatedBroker, partition: Partition, text: str) -> None:
        where = (
            f"{partition.topic}-{partition.index}: the log of {broker.name}, leader in epoch {partition.leader_epoch}, "
        )
        self._add_violation("committed kept", where + text, broker.name, f"{partition.topic}-{partition.index}")

    def _compare_content(
        self, broker: SimulatedBroker, partition: Partition, place: Place, leadership: Leadership
    ) -> None:
        """The log of a leader has everything that was committed before."""
        cursor = self._cursors.get((leadership, ""))
        log, committed = partition.log, self._committed.setdefault(place, [])
        if cursor is None:
            cursor = self._cursors[leadership, ""] = _Cursor()
            self._compare_whole(broker, partition, place, leadership)
        directory = broker.directory_of(partition.topic, partition.index)
        index = cursor.count
        for batch in batches_from(broker.disk.store, directory, cursor, log.high_watermark):
            if index < len(committed):
                expected, seen = committed[index]
                if batch != expected:
                    if not self._may_lack(place, min(seen, leadership.epoch), max(seen, leadership.epoch)):
                        self._lacks(broker, partition, f"has {batch} committed, and {expected} was so in epoch {seen}")
                    del committed[index:]
            if index >= len(committed):
                committed.append((batch, leadership.epoch))
            index += 1

    def _compare_whole(
        self, broker: SimulatedBroker, partition: Partition, place: Place, leadership: Leadership
    ) -> None:
        directory = broker.directory_of(partition.topic, partition.index)
        batches = list(batches_from(broker.disk.store, directory, _Cursor(), partition.log.end_offset))
        committed = self._committed[place]
        for index, (expected, seen) in enumerate(committed):
            if seen <= leadership.epoch and (index >= len(batches) or batches[index] != expected):
                actual = batches[index] if index < len(batches) else f"its end {partition.log.end_offset}"
                if not self._may_lack(place, seen, leadership.epoch):
                    self._lacks(broker, partition, f"has {actual} instead of {expected}, committed in epoch {seen}")
                del committed[index:]
                return


def _place(partition: Partition) -> Place:
    return partition.topic_id.hex(), partition.index


def _kind(old: PartitionImage, new: PartitionImage, before: Image) -> str:
    """Return the kind of an election."""
    if new.leader == NO_LEADER:
        return "no leader"
    if not old.isr and not old.elr and new.leader == old.last_known_leader:
        return "last known leader"  # it had all that was committed, and has it if its disk has
    if new.leader not in (*old.isr, *old.elr) or (new.is_recovering and not old.is_recovering):
        return "unclean"
    if new.leader not in old.isr:
        return _FROM_ELR
    if new.leader == old.leader:
        return "same leader again"
    if old.leader == NO_LEADER:
        return "leader is back"
    sign = before.live.get(old.leader)
    if sign is None or old.leader not in before.brokers:
        return "leader failed"
    if sign.is_stopping:
        return "leader stops"
    return "preferred" if new.leader == new.replicas[0] else "replica offline"


def at_rest(
    brokers: Sequence[SimulatedBroker], image: Image, violated: Callable[[str, str], None]
) -> dict[Place, dict[str, list[LogBatch]]]:
    """Return the batches below the high watermark of all replicas, by partition and broker; `violated` is called with each
    partition whose ISR is not complete.
    """
    logs: dict[Place, dict[str, list[LogBatch]]] = {}
    by_node = {broker.node_id: broker for broker in brokers}
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            if set(state.isr) != set(state.replicas) or state.leader == NO_LEADER:
                violated(
                    "ISR complete", f"{topic.name}-{index}: leader {state.leader}, ISR {state.isr} of {state.replicas}"
                )
                continue
            server = by_node[state.leader].server
            partition = None if server is None else server.broker.replicas.find(topic.name, index)
            if partition is None or partition.log.config.is_compacted or len(state.replicas) < 2:
                continue
            limit = partition.log.high_watermark
            logs[topic.id.hex(), index] = {
                f"b{node}": list(
                    batches_from(
                        by_node[node].disk.store, by_node[node].directory_of(topic.name, index), _Cursor(), limit
                    )
                )
                for node in state.replicas
            }
    return logs
