"""A partition as the broker that leads it sees it: its log, its epoch, and who waits for it to grow.

With one in-sync replica, this broker, a batch is committed as soon as it is appended, so the high watermark follows the
log end at once.
"""

from collections.abc import Callable

from ottla.log.log import Appended, Log


class Partition:
    """One partition that this broker leads.

    watchers  called whenever the high watermark has moved; each takes itself away when it is done
    """

    __slots__ = ("index", "leader_epoch", "leader_id", "log", "topic", "topic_id", "watchers")

    def __init__(self, topic: str, topic_id: bytes, index: int, log: Log, leader_id: int, leader_epoch: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.watchers: set[Callable[[], None]] = set()

    def append(self, frame: bytes, start: int, end: int, now_ms: int, *, zstd_allowed: bool = True) -> Appended:
        """Append the batch `frame[start:end]` of a producer. Raises StorageError."""
        appended = self.log.append(frame, start, end, self.leader_epoch, now_ms, zstd_allowed=zstd_allowed)
        self._committed()
        return appended

    def append_message_set(self, frame: bytes, start: int, end: int, now_ms: int) -> Appended:
        """Append the message set `frame[start:end]` of an old producer. Raises StorageError."""
        appended = self.log.append_message_set(frame, start, end, self.leader_epoch, now_ms)
        self._committed()
        return appended

    def append_records(self, records: list[tuple[bytes | None, bytes | None]], now_ms: int) -> Appended:
        """Append (key, value) pairs of the broker itself as one batch. Raises StorageError."""
        appended = self.log.append_records(records, self.leader_epoch, now_ms)
        self._committed()
        return appended

    def _committed(self) -> None:
        log = self.log
        if log.high_watermark != log.end_offset:
            log.high_watermark = log.end_offset
            if self.watchers:
                self.wake()

    def wake(self) -> None:
        """Tell everyone who waits to look again."""
        for watcher in tuple(self.watchers):
            watcher()
