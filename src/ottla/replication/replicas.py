"""Partitions of this broker: opened when the metadata assigns them, discarded when it no longer does.

One file, because opening, leading, following and discarding change the same table of partitions.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.log.config import LogConfig
from ottla.log.directory import LogDirectory, UnusableDirectory
from ottla.log.disk_errors import is_passing, is_shortage
from ottla.log.log import Log, StorageError
from ottla.metadata.image import EMPTY, UNASSIGNED, Delta, Image, PartitionImage, TopicImage
from ottla.metadata.plans.eligibility import min_isr_of
from ottla.protocol.errors import (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.replication.leader.leadership import Leadership
from ottla.replication.partition import Partition
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.scheduler import Pieces, Scheduler

_logger = logging.getLogger("ottla.replication")
NEVER_MS: Final = (1 << 63) - 1
_PARTITIONS_A_STEP: Final = 16
"""Number of logs opened or discarded in one step of a few milliseconds."""
_TOPICS_A_STEP: Final = 50
_MANY_PARTITIONS: Final = 500
_LED_A_STEP: Final = 500
"""Number of open partitions that are examined or updated in one step of a few milliseconds."""


class PartitionView(NamedTuple):
    """Leader, ISR and offline replicas of a partition, as reported to clients; `leader` is -1 when its log is offline or its
    broker is fenced.
    """

    error_code: int
    leader: int
    isr: list[int]
    offline: list[int]


class Replicas:
    """Partitions by topic name or id and index.

    directories  log directories of the partitions
    configs  the log config of a topic, computed from its overrides and the broker's values
    discard  called with the directory of a deleted partition, to be removed after file.delete.delay.ms
    flush    called with a partition whose log demands a flush
    checkpoint  writes the checkpoints of all directories
    missing  configured log directories that could not be opened at the start
    now_ms   returns the current time in ms
    max_lag_ms  replica.lag.time.max.ms
    isr_changed  called with a partition that this broker leads when its ISR should change
    in_cluster  whether other brokers may have replicas of the same partitions
    """

    def __init__(
        self,
        *,
        node_id: int,
        tasks: Scheduler,
        directories: list[LogDirectory],
        configs: Callable[[TopicImage], LogConfig],
        discard: Callable[[LogDirectory, Path], None],
        flush: Callable[[Partition], None],
        checkpoint: Callable[[], Answer[None]],
        now_ms: Callable[[], int],
        max_lag_ms: int,
        missing: Iterable[Path] = (),
        in_cluster: bool = False,
    ) -> None:
        self._node_id = node_id
        self._tasks = tasks
        self._now_ms = now_ms
        self._max_lag_ms = max_lag_ms
        self.isr_changed: Callable[[Partition], None] = _ignore
        self.directories = directories
        self._configs = configs
        self._discard = discard
        self._flush = flush
        self._checkpoint = checkpoint
        self.missing = list(missing)
        self._in_cluster = in_cluster
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._homes: dict[tuple[str, int], LogDirectory] = {}
        self._topics: Mapping[str, TopicImage] = {}
        self._topics_by_id: Mapping[bytes, TopicImage] = {}
        self._image = EMPTY
        self._failed: set[tuple[str, int]] = set()
        self._postponed: dict[tuple[str, int], None] = {}
        """Partitions of `_failed` that could not be opened for a lack of resources."""
        self.shortest_flush_ms = NEVER_MS
        self.on_offline: list[Callable[[str, int], None]] = []
        """Called with the topic and index of each partition whose log goes offline."""
        self.on_online: list[Callable[[TopicImage], None]] = []
        """Called with the topic of partitions that were opened late."""
        self.opened_many: Callable[[], object] = _nothing
        """Called whenever _MANY_PARTITIONS more have been opened."""
        # Counted across topics: a change of thousands of topics with one partition each is done in steps too.
        self._opened_since = self._updated = self._moved = 0
        self.is_loaded = False
        """True once `load` has opened the partitions."""
        self.on_damage: list[Callable[[Partition], None]] = []
        """Called with each partition whose log could not be read, although its disk works."""
        for directory in directories:
            directory.on_failure.append(self._take_offline)

    def load(self, image: Image) -> None:
        """Open all partitions in the directories, and discard those of deleted topics, and those that were assigned to other
        brokers since the last stop. Directories are matched by topic id, then by the name. Partitions that may be in a
        directory that failed are offline, rather than created again in another one.
        """
        known = {
            (topic.name, index): topic.id
            for topic in image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if self._node_id in partition.replicas
        }
        elsewhere = {
            (topic.name, index): topic.id
            for topic in image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if self._in_cluster and self._node_id not in partition.replicas
        }
        certain: dict[tuple[str, int], list[LogDirectory]] = {}
        uncertain: dict[tuple[str, int], list[LogDirectory]] = {}
        for directory in self.directories:
            try:
                inventory = directory.take_inventory(known, elsewhere)
            except OSError as cause:
                directory.fail(cause)
                if directory.offline is None:
                    raise UnusableDirectory(f"cannot read {directory.path}: {cause.strerror}") from None
                continue
            for leftover in inventory.leftovers:
                self._discard(directory, leftover)
            for key in inventory.certain:
                certain.setdefault(key, []).append(directory)
            for key in inventory.uncertain:
                uncertain.setdefault(key, []).append(directory)
        self._topics, self._topics_by_id = image.topics, image.topics_by_id
        self._image = image
        for key in known:
            if not self._awaits_directory(key, [*certain.get(key, ()), *uncertain.get(key, ())]):
                self._choose_home(key, certain.get(key, []), uncertain.get(key, []))
        if not self._all_online:
            self._failed |= known.keys() - self._homes.keys()
        for topic in image.topics.values():
            for _ in self._open(topic):
                pass  # no client is connected yet
        self.is_loaded = True

    @property
    def _all_online(self) -> bool:
        return not self.missing and all(directory.offline is None for directory in self.directories)

    def _awaits_directory(self, key: tuple[str, int], copies: list[LogDirectory]) -> bool:
        """Return True if a partition was moved to a log directory that may come back: the copies left in other directories,
        because their disk had failed, lack later batches.
        """
        assigned = self._directory_id(key)
        online = (directory.id for directory in self.directories if directory.offline is None)
        if not copies or assigned == UNASSIGNED or assigned in online:
            return False
        old = ", ".join(str(directory.path) for directory in copies)
        if self._all_online:
            _logger.warning(
                "%s-%d was moved to a log directory that is not in log.dirs any more: the older copy in %s is used",
                *key,
                old,
            )
            return False
        _logger.error(
            "%s-%d is offline: it was moved to a log directory that is offline, and the copy in %s is older; bring that "
            "directory back, or take it out of log.dirs to use the older copy, and restart",
            *key,
            old,
        )
        return True

    def _directory_id(self, key: tuple[str, int]) -> bytes:
        """Return the id of the log directory that the metadata assigns to a partition here (KIP-858), or UNASSIGNED."""
        return self._topics[key[0]].partitions[key[1]].directory_of(self._node_id)

    def misassigned(self) -> list[Partition]:
        """Return the partitions that are in another log directory than the metadata assigns: moved by hand while the broker was
        down, or being moved when it crashed.
        """
        return [
            self._by_name[topic][index]
            for (topic, index), home in self._homes.items()
            if self._directory_id((topic, index)) not in (UNASSIGNED, home.id) and index in self._by_name[topic]
        ]

    def _choose_home(self, key: tuple[str, int], certain: list[LogDirectory], uncertain: list[LogDirectory]) -> None:
        """Choose the directory to open, of those that have a partition under its name.

        Two have it with the right topic id when a crash or a failed disk kept a move from discarding the old log. From then on
        batches were added to the new one only: the longer log is the current one.
        """
        candidates = certain or uncertain
        if not candidates:
            return
        home = max(candidates, key=lambda directory: directory.end_of(*key)) if len(candidates) > 1 else candidates[0]
        self._homes[key] = home
        for directory in (*certain, *uncertain):
            if directory is not home:
                try:
                    directory.set_aside(
                        f"{key[0]}-{key[1]}", f"is not the current copy of this partition, which is in {home.path}"
                    )
                except OSError as cause:
                    _logger.error("cannot rename the other copy of %s-%d in %s: %s", *key, directory.path, cause)
                    directory.fail(cause)

    def apply(self, delta: Delta) -> Answer[None]:
        """Apply a change of the metadata, in pieces; nothing before `load`."""
        return self._tasks.run_pieces(self._apply(delta), "the partitions") if self.is_loaded else None

    def _apply(self, delta: Delta) -> Pieces:
        self._topics, self._topics_by_id = delta.image.topics, delta.image.topics_by_id
        self._image = delta.image
        self._moved = 0  # a small change is done in its first step
        released = 0
        for topic in delta.deleted:
            yield from self._close(topic)
        for topic in delta.changed:
            released += yield from self._release(topic, range(len(topic.partitions)))
        for name, indexes in delta.moved.items():
            released += yield from self._release(delta.image.topics[name], indexes)
        if delta.deleted or released:
            # Before a partition can be created again: its log must not begin with the offsets of the old one.
            written = self._checkpoint()
            if isinstance(written, Deferred):
                yield written
        for topic in delta.changed:
            yield from self._open(topic)
        for name, indexes in delta.moved.items():
            yield from self._open(delta.image.topics[name], indexes)
        if delta.membership and delta.before.brokers != delta.image.brokers:
            # A follower outside the ISR that was waited for may be fenced, or one that has caught up may be live again; its
            # fetches may have come before its new registration, and an idle one does not name its position again.
            for number, partition in enumerate(self.led(), 1):
                partition.advance()
                partition.propose()
                if number % _LED_A_STEP == 0:
                    yield None

    def led(self) -> list[Partition]:
        """Return the partitions with several replicas that this broker leads."""
        return [partition for partition in self.all() if partition.leadership is not None]

    @property
    def has_replicated(self) -> bool:
        """True if a partition here has replicas on other brokers too."""
        return any(partition.leadership is not None or partition.leader_id != self._node_id for partition in self.all())

    def is_eligible(self, node_id: int, broker_epoch: int) -> bool:
        """Return True if a broker is live, does not stop, and has this registration; a broker epoch of -1 is not compared."""
        image = self._image
        return image.is_active(node_id) and broker_epoch in (-1, image.brokers[node_id].epoch)

    def _lead(self, partition: Partition, placed: PartitionImage) -> None:
        """Make this broker the leader of a partition, or take over a newer state of a partition that it leads."""
        leadership = partition.leadership
        min_isr = partition.log.config.min_insync_replicas
        next_min_isr = self._next_min_isr(partition.topic_id)
        if placed.replicas == (self._node_id,) and not placed.is_recovering:
            leadership = None
        elif leadership is not None and leadership.epoch == placed.leader_epoch:
            leadership.update(placed, min_isr, next_min_isr)
        else:
            log = partition.log
            log.epochs.begin(placed.leader_epoch, log.end_offset)
            leadership = Leadership(
                self._node_id,
                placed,
                min_isr,
                next_min_isr,
                log.epochs.start_of_latest(log.end_offset),
                self._now_ms(),
                self._max_lag_ms,
                self.is_eligible,
            )
        partition.lead(leadership)

    def _next_min_isr(self, topic_id: bytes) -> int:
        topic = self._topics_by_id.get(topic_id)
        return 0 if topic is None else min_isr_of(self._image, topic.configs)

    def reconfigure(self, image: Image) -> Answer[None]:
        """Compute every log's config again after a change of the broker's own, or of the features, in pieces; nothing before
        `load`.
        """
        return self._tasks.run_pieces(self._reconfigure(image), "the configs of logs") if self.is_loaded else None

    def _reconfigure(self, image: Image) -> Pieces:
        for number, topic in enumerate(image.topics.values(), 1):
            yield from self._open(topic)
            if number % _TOPICS_A_STEP == 0:
                yield None

    def _open(self, topic: TopicImage, indexes: Iterable[int] | None = None) -> Pieces:
        """Open the partitions of a topic that are not open yet, and set config and leader of those that are; in steps.

        indexes  only these partitions; None: all of them
        """
        config = self._configs(topic)
        self.shortest_flush_ms = min(self.shortest_flush_ms, config.flush_ms)
        partitions = self._by_name.setdefault(topic.name, {})
        self._by_id[topic.id] = partitions
        for index in range(len(topic.partitions)) if indexes is None else indexes:
            placed = topic.partitions[index]
            if self._node_id not in placed.replicas:
                continue
            held = partitions.get(index)
            if held is not None:
                self._updated += 1
                if self._updated % _LED_A_STEP == 0:
                    yield None
                held.log.config = config
                held.follow(placed.leader, placed.leader_epoch)
                if placed.leader == self._node_id:
                    self._lead(held, placed)
                continue
            if (topic.name, index) in self._failed and (topic.name, index) not in self._postponed:
                continue
            self._moved += 1
            if self._moved % _PARTITIONS_A_STEP == 0:
                yield None
            log = self._open_log(topic, index, config)
            if log is not None:
                self._opened_since += 1
                if self._opened_since >= _MANY_PARTITIONS:
                    self._opened_since = 0
                    self.opened_many()
                partitions[index] = partition = Partition(
                    topic.name, topic.id, index, log, placed.leader, placed.leader_epoch, self._flush, self._tasks
                )
                partition.isr_changed = self.isr_changed
                if placed.leader == self._node_id:
                    self._lead(partition, placed)

    def _open_log(self, topic: TopicImage, index: int, config: LogConfig) -> Log | None:
        """Open a partition's log; None when that fails, and then the partition is offline. After a lack of resources, such as
        file descriptors, it is retried (`open_postponed`).
        """
        key = topic.name, index
        home = self._homes.get(key) or self._home_for_new_partition()
        try:
            if home is None:
                raise StorageError("all log directories are offline")
            self._homes[key] = home
            # A log was opened in the directory that it is assigned to, and leftovers of earlier topics were set aside then.
            is_only_place = self._has_one_directory or self._directory_id(key) == home.id
            log = home.open_partition(
                topic.name,
                index,
                topic.id,
                config,
                only_place=is_only_place,
                in_cluster=self._in_cluster,
                may_refill=self._in_cluster and self._may_refill(topic.partitions[index]),
            )
        except (OSError, StorageError) as cause:
            is_passing = isinstance(cause, OSError) and is_shortage(cause)
            if key not in self._postponed:
                how = "offline, and is tried again" if is_passing else "offline"
                why = f"{cause.filename}: {cause.strerror}" if isinstance(cause, OSError) else cause
                _logger.error("%s-%d is %s: %s", topic.name, index, how, why)
            self._failed.add(key)
            self._postponed.pop(key, None)
            if is_passing:
                self._postponed[key] = None
            return None
        if key in self._postponed:
            _logger.info("%s-%d is online", topic.name, index)
        self._postponed.pop(key, None)
        self._failed.discard(key)
        return log

    def _may_refill(self, placed: PartitionImage) -> bool:
        """Return True if others have every committed record of a partition: then damage here is cut, and fetched again.

        A member of ISR or ELR may be elected leader with the log that it has: its damage takes the partition offline instead.
        """
        elected = self._node_id in placed.isr or self._node_id in placed.elr or self._node_id == placed.leader
        return not elected and bool(placed.isr or placed.elr)

    def open_postponed(self) -> None:
        """Retry to open the partitions that failed for a lack of resources."""
        for name in dict.fromkeys(name for name, _ in self._postponed):
            topic = self._topics.get(name)
            if topic is None:  # it is being deleted
                continue
            before = len(self._postponed)
            for _ in self._open(topic):
                pass  # they are few
            if len(self._postponed) < before:
                for listener in self.on_online:
                    listener(topic)

    def has_offline(self, topic: TopicImage, first: int = 0) -> bool:
        """Return True if a local partition of `topic`, from index `first` on, is offline."""
        return any((topic.name, index) in self._failed for index in range(first, len(topic.partitions)))

    @property
    def is_working(self) -> bool:
        """True while at least one directory is online."""
        return any(directory.offline is None for directory in self.directories)

    @property
    def _has_one_directory(self) -> bool:
        return len(self.directories) + len(self.missing) == 1

    def _home_for_new_partition(self) -> LogDirectory | None:
        """Return the directory for a new partition: the working one with the fewest, as in Kafka; None if none works.

        A cordoned one is taken only if all are: the partition was assigned to this broker before.
        """
        working = [directory for directory in self.directories if directory.offline is None]
        open_to_new = [directory for directory in working if not directory.is_cordoned]
        return min(open_to_new or working, key=lambda directory: len(directory.logs()), default=None)

    def _close(self, topic: TopicImage) -> Pieces:
        """Discard the partitions of a deleted topic, in steps; none of them can be found from the first step on."""
        self._by_id.pop(topic.id, None)
        partitions = self._by_name.pop(topic.name, {})
        for index in range(len(topic.partitions)):
            self._moved += 1
            if self._moved % _PARTITIONS_A_STEP == 0:
                yield None
            key = topic.name, index
            self._failed.discard(key)
            self._postponed.pop(key, None)
            home = self._homes.pop(key, None)
            for directory in self.directories:
                if directory.offline is None and (directory is home or directory.has_copy(*key, topic.id)):
                    self._discard_from(directory, key)
            if index in partitions:
                partitions[index].fail(UNKNOWN_TOPIC_OR_PARTITION)

    def _release(self, topic: TopicImage, indexes: Iterable[int]) -> Generator[None, None, int]:
        """Discard the partitions of a topic that a reassignment has taken from this broker, in steps; return their number.

        The image says that other brokers have all that is committed. If it assigns a partition here again later, this replica
        is not in the ISR, and begins with an empty log.
        """
        released = 0
        for index in indexes:
            key, placed = (topic.name, index), topic.partitions[index]
            if self._node_id in placed.replicas or not (key in self._homes or key in self._failed):
                continue
            released += 1
            self._moved += 1
            if self._moved % _PARTITIONS_A_STEP == 0:
                yield None
            self._failed.discard(key)
            self._postponed.pop(key, None)
            home = self._homes.pop(key, None)
            partition = self._by_name.get(topic.name, {}).pop(index, None)
            for directory in self.directories:
                # An older copy in another directory would be opened if the partition is assigned here again.
                if directory.offline is None and (directory is home or directory.has_copy(*key, topic.id)):
                    self._discard_from(directory, key)
            if partition is not None:
                _logger.info("%s-%d has been reassigned to %s: its log here is removed", *key, list(placed.replicas))
                partition.follow(placed.leader, placed.leader_epoch)
                partition.fail(NOT_LEADER_OR_FOLLOWER)
        return released

    def _discard_from(self, home: LogDirectory, key: tuple[str, int]) -> None:
        """Discard a partition's directory; if that fails, the next start sees that it is not the current one."""
        try:
            discarded = home.discard_partition(*key)
        except OSError as cause:
            _logger.error("cannot discard %s-%d from %s: %s", *key, home.path, cause)
            home.fail(cause)
            return
        if discarded is not None:
            self._discard(home, discarded)

    def home_of(self, partition: Partition) -> LogDirectory:
        """Return the log directory of a partition."""
        return self._homes[partition.topic, partition.index]

    def move(self, partition: Partition, target: LogDirectory) -> None:
        """Replace a partition by its complete copy in `target`. Raises OSError and StorageError for an error in `target`, and
        then nothing has changed; one in the old directory is not raised.
        """
        key = partition.topic, partition.index
        home = self._homes[key]
        partition.log = target.end_move(*key, partition.log)
        self._homes[key] = target
        self._discard_from(home, key)
        self._checkpoint()
        partition.advance()  # waiting batches depend on the flush of the new log now

    def _take_offline(self, home: LogDirectory) -> None:
        """Take the partitions of a failed directory offline, and fail all their waiters."""
        for topic, index in home.logs():
            self._failed.add((topic, index))
            partition = self._by_name.get(topic, {}).pop(index, None)
            if partition is not None:
                partition.fail(KAFKA_STORAGE_ERROR)
            for listener in self.on_offline:
                listener(topic, index)

    def find(self, topic: str, index: int) -> Partition | None:
        """Return the replica on this broker, whoever leads it; None without one, or while its log is offline."""
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def leader(self, topic: str, index: int) -> Partition | int:
        """Return the partition if this broker leads it, else an error code: KAFKA_STORAGE_ERROR while its log is offline,
        NOT_LEADER_OR_FOLLOWER when another broker leads it, UNKNOWN_TOPIC_OR_PARTITION when the metadata does not have it.
        """
        partitions = self._by_name.get(topic)
        partition = None if partitions is None else partitions.get(index)
        if partition is not None and partition.leader_id == self._node_id:
            return partition
        return self.absence(topic, index)

    def absence(self, topic: str, index: int) -> int:
        """Return the error code for a partition that this broker does not lead, or has no replica of."""
        if (topic, index) in self._failed:
            return KAFKA_STORAGE_ERROR
        known = self._topics.get(topic)
        if known is not None and 0 <= index < len(known.partitions):
            return NOT_LEADER_OR_FOLLOWER
        return UNKNOWN_TOPIC_OR_PARTITION

    def leader_by_id(self, topic_id: bytes, index: int) -> Partition | int:
        """Return the partition or error code as `leader` does; UNKNOWN_TOPIC_ID for an unknown id."""
        partitions = self._by_id.get(topic_id)
        partition = None if partitions is None else partitions.get(index)
        if partition is not None and partition.leader_id == self._node_id:
            return partition
        topic = self._topics_by_id.get(topic_id)
        return UNKNOWN_TOPIC_ID if topic is None else self.leader(topic.name, index)

    def readable(
        self, topic: str, index: int, leader_epoch: int, *, leader_only: bool, topic_id: bytes | None = None
    ) -> Partition | int:
        """Return the replica of a partition for a reader, else an error code as `leader` does.

        leader_epoch  epoch that the reader knows, -1 for any: FENCED_LEADER_EPOCH if it is older, UNKNOWN_LEADER_EPOCH if newer
        leader_only   whether a follower must not serve the reader
        topic_id      id of the topic, instead of its name
        """
        partitions = self._by_name.get(topic) if topic_id is None else self._by_id.get(topic_id)
        partition = None if partitions is None else partitions.get(index)
        if partition is None:
            if topic_id is not None:
                known = self._topics_by_id.get(topic_id)
                if known is None:
                    return UNKNOWN_TOPIC_ID
                topic = known.name
            return self.absence(topic, index)
        if leader_epoch >= 0 and leader_epoch != partition.leader_epoch:
            return FENCED_LEADER_EPOCH if leader_epoch < partition.leader_epoch else UNKNOWN_LEADER_EPOCH
        if leader_only and partition.leader_id != self._node_id:
            return NOT_LEADER_OR_FOLLOWER
        return partition

    def read_failed(self, partition: Partition, offset: int, cause: StorageError | OSError) -> int:
        """Log why `offset` could not be read, once; return the error code for the reader.

        A reader of a partition with other replicas asks again: this one gives up its leadership to one that is in sync.
        """
        partition.log_damage(cause)
        if not is_passing(cause):
            self.report_damage(partition, offset)
        leadership = partition.leadership
        if isinstance(cause, OSError) or (leadership is not None and leadership.followers):
            return KAFKA_STORAGE_ERROR
        return cause.code

    def report_damage(self, partition: Partition, offset: int) -> None:
        """Report that `offset` could not be read. The first report of a partition counts until the damage is repaired."""
        if partition.damaged_at < 0 and self.find(partition.topic, partition.index) is partition:
            partition.damaged_at, partition.damaged_in = offset, partition.leader_epoch
            for listener in self.on_damage:
                listener(partition)

    @property
    def has_failed(self) -> bool:
        """True if the log of a partition of this broker is offline."""
        return bool(self._failed)

    def is_offline(self, topic: str, index: int) -> bool:
        """Return True if a partition of this broker is in a failed directory, or its log could not be opened."""
        return (topic, index) in self._failed

    @property
    def revision(self) -> int:
        """Return the revision of the metadata that `view` is about."""
        return self._image.revision

    def view(self, topic: TopicImage, index: int) -> PartitionView:
        """Return the state of a partition as reported to clients."""
        placed = topic.partitions[index]
        has_failed = (topic.name, index) in self._failed
        live = self._image.brokers
        offline = [
            node
            for node in placed.replicas
            if node not in live or node in placed.offline or (has_failed and node == self._node_id)
        ]
        if has_failed and placed.leader == self._node_id:
            return PartitionView(
                LEADER_NOT_AVAILABLE, -1, [node for node in placed.isr if node not in offline], offline
            )
        if placed.leader not in live:
            return PartitionView(LEADER_NOT_AVAILABLE, -1, list(placed.isr), offline)
        return PartitionView(NONE, placed.leader, list(placed.isr), offline)

    def all(self) -> list[Partition]:
        """Return all open partitions; a directory failure during the iteration does not change the list."""
        return [partition for partitions in self._by_name.values() for partition in partitions.values()]

    def by_topic(self) -> Mapping[str, Mapping[int, Partition]]:
        """Return the partitions by topic name and index."""
        return self._by_name


def _nothing() -> None: ...


def _ignore(partition: Partition) -> None:
    """Ignore a partition whose ISR should change: a single broker has no followers."""
