"""A partition as the broker that leads it sees it: its log, its epoch, and who waits for it to grow.

With one in-sync replica, this broker, a batch is committed as soon as its log says that it counts: at once, or when it is on
the medium where flush.messages wants it there.
"""

from collections.abc import Callable

from ottla.log.log import Appended, Log


class Partition:
    """One partition that this broker leads.

    watchers  called whenever the high watermark has moved; each takes itself away when it is done
    flush     called when the log wants something on the medium; whoever did it calls `advance`
    """

    __slots__ = ("flush", "index", "leader_epoch", "leader_id", "log", "topic", "topic_id", "watchers")

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        leader_id: int,
        leader_epoch: int,
        flush: Callable[["Partition"], None],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.watchers: set[Callable[[], None]] = set()
        self.flush = flush

    def append(
        self,
        frame: bytes,
        start: int,
        end: int,
        now_ms: int,
        *,
        zstd_allowed: bool = True,
        begins_at_zero: bool = False,
    ) -> Appended:
        """Append the batch `frame[start:end]` of a producer; see `Appended.unfinished`. Raises StorageError."""
        appended = self.log.append(
            frame,
            start,
            end,
            self.leader_epoch,
            now_ms,
            zstd_allowed=zstd_allowed,
            begins_at_zero=begins_at_zero,
        )
        if appended.unfinished is None:
            self.advance()
            return appended
        return self._advanced(appended)

    def _advanced(self, appended: Appended) -> Appended:
        """`appended`, with the high watermark moved: now, or when an append that takes long is through."""
        unfinished = appended.unfinished
        if unfinished is None:
            self.advance()
        else:
            appended.unfinished = unfinished._replace(append=lambda: self._advanced(unfinished.append()))
        return appended

    def append_message_set(self, frame: bytes, start: int, end: int, now_ms: int) -> Appended:
        """Append the message set `frame[start:end]` of an old producer. Raises StorageError."""
        return self._advanced(self.log.append_message_set(frame, start, end, self.leader_epoch, now_ms))

    def append_records(
        self,
        records: list[tuple[bytes | None, bytes | None]],
        now_ms: int,
        producer: tuple[int, int] | None = None,
    ) -> Appended:
        """Append (key, value) pairs of the broker itself as one batch, of a producer's transaction if one is given as (id,
        epoch). Raises StorageError.
        """
        appended = self.log.append_records(records, self.leader_epoch, now_ms, producer)
        self.advance()
        return appended

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        now_ms: int,
        *,
        commit: bool,
        new_epoch: bool,
    ) -> Appended:
        """Append the marker that ends a producer's transaction here. Raises StorageError."""
        appended = self.log.append_marker(
            producer_id,
            producer_epoch,
            coordinator_epoch,
            self.leader_epoch,
            now_ms,
            commit=commit,
            new_epoch=new_epoch,
        )
        self.advance()
        return appended

    def advance(self) -> None:
        """The log has grown, or more of it counts: move the high watermark as far as it may go."""
        log = self.log
        if log.wants_flush:
            self.flush(self)
        settled = log.settled_offset
        if log.high_watermark != settled:
            log.high_watermark = settled
            if self.watchers:
                self.wake()

    def wake(self) -> None:
        """Tell everyone who waits to look again."""
        for watcher in tuple(self.watchers):
            watcher()
