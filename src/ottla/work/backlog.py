"""Records that a worker has read and not finished: what may be worked on now, what may be committed, which partitions are full.

    read ---> held until due ---> lane of its key ---> taken ---> finished
                                  one at a time                      |
                                                                     v
                    committed: everything before the first record that is not finished

Records with the same key of a partition are one lane, and come one after another; those without a key have no order. Pure: time
is an argument, and the caller locks.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ottla.client.topics import TopicPartition

_Lane = deque["Item"]
_PART_OF_FULL: Final = 2
"""A full partition is read again when it has one in so many of its records left."""


def _at_once(record: Any) -> int:
    del record
    return 0


class _Partition:
    """Records of a partition, from its assignment until its revocation.

    unfinished  offsets in the order of reading, which is that of the log
    held        records that are not due, behind the first that is not
    end         offset after the last record that was read
    committed   offset that was reported as done
    """

    __slots__ = ("committed", "end", "held", "is_paused", "is_revoked", "lanes", "running", "unfinished")

    def __init__(self) -> None:
        self.unfinished: dict[int, None] = {}
        self.held: deque[Any] = deque()
        self.lanes: dict[Any, _Lane] = {}
        self.end = self.committed = -1
        self.running = 0
        self.is_paused = self.is_revoked = False

    @property
    def done(self) -> int:
        """Return the offset before which every record is finished; -1 before the first record."""
        return next(iter(self.unfinished), self.end)


class Item:
    """A record to work on."""

    __slots__ = ("_home", "record")

    def __init__(self, record: Any, home: _Partition) -> None:
        self.record = record
        self._home = home


class Backlog:
    """Unfinished records of all assigned partitions.

    most    records of a partition from which on it is full
    due_ms  when a record may be worked on, in ms since the epoch
    """

    def __init__(self, most: int, due_ms: Callable[[Any], int] = _at_once) -> None:
        self._most = most
        self._due_ms = due_ms
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._ready: deque[Item] = deque()
        self._is_closed = False

    def add(self, records: Iterable[Any], now_ms: int) -> None:
        """Add records that were read."""
        for record in records:
            place = TopicPartition(record.topic, record.partition)
            home = self._partitions.get(place)
            if home is None:
                home = self._partitions[place] = _Partition()
            home.unfinished[record.offset] = None
            home.end = record.offset + 1
            home.held.append(record)
        self.release(now_ms)

    def release(self, now_ms: int) -> None:
        """Make records ready that are due by now."""
        for home in self._partitions.values():
            while home.held and self._due_ms(home.held[0]) <= now_ms:
                self._enter(Item(home.held.popleft(), home))

    def _enter(self, item: Item) -> None:
        key = item.record.key
        if key is None:
            self._ready.append(item)
            return
        home = item._home
        lane = home.lanes.get(_hashable(key))
        if lane is None:
            home.lanes[_hashable(key)] = deque()
            self._ready.append(item)
        else:
            lane.append(item)

    def take(self) -> Item | None:
        """Return a record to work on, None if no one is ready."""
        while self._ready and not self._is_closed:
            item = self._ready.popleft()
            if not item._home.is_revoked:
                item._home.running += 1
                return item
        return None

    def finish(self, item: Item) -> None:
        """Note that a taken record is done: the next one of its key is ready."""
        home = item._home
        home.running -= 1
        home.unfinished.pop(item.record.offset, None)
        key = item.record.key
        if key is None:
            return
        lane = home.lanes[_hashable(key)]
        if lane:
            self._ready.append(lane.popleft())
        else:
            del home.lanes[_hashable(key)]

    def abandon(self, item: Item) -> None:
        """Note that a taken record ended without being done: it is read again after the last commit."""
        item._home.running -= 1

    def offsets_to_commit(self) -> dict[TopicPartition, int]:
        """Return the offsets to commit that were not returned before, each behind what is finished."""
        offsets = {}
        for place, home in self._partitions.items():
            if home.done > home.committed:
                home.committed = offsets[place] = home.done
        return offsets

    def unfinished(self) -> dict[TopicPartition, int]:
        """Return the offset of the first record that is not done, of partitions that have one."""
        return {place: home.done for place, home in self._partitions.items() if home.unfinished}

    def on_commit_failed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note that offsets could not be committed: they are returned again."""
        for place, offset in offsets.items():
            home = self._partitions.get(place)
            if home is not None and home.committed == offset:
                home.committed = -1

    def partitions_to_pause(self) -> list[TopicPartition]:
        """Return the partitions to pause: full ones, and those whose next record is not due."""
        return self._turn(is_paused=True)

    def partitions_to_resume(self) -> list[TopicPartition]:
        """Return the paused partitions to resume."""
        return self._turn(is_paused=False)

    def _turn(self, *, is_paused: bool) -> list[TopicPartition]:
        turned = []
        for place, home in self._partitions.items():
            most = self._most // _PART_OF_FULL if home.is_paused else self._most
            if home.is_paused != is_paused and (bool(home.held) or len(home.unfinished) >= max(most, 1)) == is_paused:
                home.is_paused = is_paused
                turned.append(place)
        return turned

    def running(self, partitions: Iterable[TopicPartition]) -> int:
        """Return the number of taken records of partitions."""
        return sum(self._partitions[place].running for place in partitions if place in self._partitions)

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that belong to another member: none of their records is taken any more."""
        for place in partitions:
            home = self._partitions.pop(place, None)
            if home is not None:
                home.is_revoked = True

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Take no further record of partitions, which are about to be revoked."""
        for place in partitions:
            home = self._partitions.get(place)
            if home is not None:
                home.is_revoked = True

    def close(self) -> None:
        """Take no further record of any partition."""
        self._is_closed = True


def _hashable(key: Any) -> Any:
    """Return a key as one of a dict: a deserialized one may be a dict or list."""
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key
