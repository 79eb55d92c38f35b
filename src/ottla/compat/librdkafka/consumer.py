"""Consumer with the calls and the behaviour of librdkafka's, on Ottla's.

What differs from Ottla's consumer is done here: offsets are stored when a record is returned, and commits take the stored
ones; the end of a partition is a message; `assign` takes offsets, inside a rebalance callback as well; `consume` waits for as
many records as it is asked for; errors of the partitions are messages.

One file, because it is one class, the calls of which share its offsets; what it needs of the core is in reader.py.
"""

import operator
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

from ottla.client.errors import IllegalState, NoOffset, RequestTimedOut
from ottla.client.errors import KafkaError as ClientError
from ottla.client.groups import OffsetAndMetadata
from ottla.client.topics import EARLIEST, LATEST
from ottla.client.topics import TopicPartition as ClientPartition
from ottla.compat.librdkafka.codes import CODES, NUMBERS
from ottla.compat.librdkafka.configs import settings, switch
from ottla.compat.librdkafka.errors import KafkaError, KafkaException, error_from, exception, prefix_error
from ottla.compat.librdkafka.events import Events, statistics
from ottla.compat.librdkafka.groups import opaque_group_metadata
from ottla.compat.librdkafka.handle import Client, milliseconds
from ottla.compat.librdkafka.reader import Key, Reader, key_of
from ottla.compat.librdkafka.values import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    Message,
    TopicPartition,
    positions,
)
from ottla.records.record import Record

T = TypeVar("T")
_TAIL: Final = -2000
"""Offsets from here down count from the end: -2003 is the third last."""
_SLICE_MS: Final = 100
"""Time after which a waiting poll looks for callbacks and ends of partitions."""
_MOST: Final = 1_000_000


def _client_partition(partition: TopicPartition) -> ClientPartition:
    return ClientPartition(partition.topic, partition.partition)


class Consumer(Client):
    """Member of a group, with librdkafka's configs.

        consumer = Consumer({"bootstrap.servers": "localhost:9092", "group.id": "readers"})
        consumer.subscribe(["work"])
        message = consumer.poll(1.0)

    Callbacks run in the thread that calls `poll`, `consume` or `close`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._settings = settings("consumer", args, kwargs)
        own = self._settings.own
        self._stores = switch(own, "enable.auto.offset.store")
        self._shows_ends = switch(own, "enable.partition.eof")
        self._commits = switch(own, "enable.auto.commit") and switch(own, "auto.commit.enable")
        self._interval = int(own.get("auto.commit.interval.ms", 5000)) / 1000
        self._committed_at = time.monotonic()
        self._on_commit = self._settings.callbacks.get("on_commit")
        self._last: dict[Key, tuple[int, int]] = {}  # offset after the last record or marker, and its epoch
        self._starts: dict[Key, int] = {}  # offsets of assign and seek, until a record or marker follows
        self._stored: dict[Key, tuple[int, int, str]] = {}  # offsets to commit
        self._ends: dict[Key, int] = {}  # offsets at which the end of a partition was reported
        self._offsets: dict[Key, int] = {}  # offsets that assign was assigned
        self._left_out: set[Key] = set()  # partitions of the group that the application has not assigned
        self._subscribed = False
        self._on_assign: Callable[..., Any] | None = None
        self._on_revoke: Callable[..., Any] | None = None
        self._on_lost: Callable[..., Any] | None = None
        self._rebalancing: str | None = None
        self._missing: set[str] = set()
        self._closed = False
        self._handle = self._reader = Reader(self._settings.client)
        self._events = Events(self._settings, self._statistics)
        self._reader.report_to(self._events)

    def _check(self, message: str = "Consumer closed") -> None:
        if self._closed:
            raise RuntimeError(message)

    # Subscriptions and assignments.

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[..., Any] | None = None,
        on_revoke: Callable[..., Any] | None = None,
        on_lost: Callable[..., Any] | None = None,
    ) -> None:
        """Read topics as a member of the group; a name with `^` in front is a pattern. Raises KafkaException, TypeError.

        on_*  called inside `poll` with the consumer and the partitions
        """
        self._check()
        if not isinstance(topics, list):
            raise TypeError("expected list of topic unicode strings")
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} expects a callable")
        names = [str(topic) for topic in topics]
        patterns = [name for name in names if name.startswith("^")]
        if not self._subscribed:
            self._convert("Failed to set subscription: ", self._reader.unsubscribe)
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost
        self._missing = set()
        exact = [_escape_name(name) for name in names if not name.startswith("^")]
        whole = "|".join(f"(?:{_whole(pattern)})" for pattern in (*patterns, *exact)) if patterns else None
        self._convert(
            "Failed to set subscription: ",
            lambda: self._reader.subscribe(
                () if patterns else names,
                pattern=whole,
                on_assign=self._on_partitions_assigned,
                on_revoke=self._on_partitions_revoked,
                on_lost=self._on_partitions_lost,
            ),
        )
        self._subscribed = True

    def unsubscribe(self) -> None:
        """Drop the subscription and leave the group; on_revoke is called before."""
        self._check()
        self._leave()
        self._convert("Failed to remove subscription: ", self._reader.unsubscribe)
        self._subscribed = False
        self._forget(list(self._last))
        self._offsets.clear()
        self._left_out.clear()

    def _leave(self) -> None:
        """Call on_revoke, and commit what is stored."""
        held = [TopicPartition(*partition) for partition in self._reader.assignment()]
        if self._subscribed and held:
            self._call_back("revoke", self._on_revoke, held)
        self._commit_stored()

    def _on_partitions_assigned(self, partitions: Iterable[ClientPartition]) -> None:
        """Listen to an assignment. Runs inside `poll`."""
        assigned = [TopicPartition(*partition) for partition in partitions]
        self._forget([key_of(partition) for partition in partitions])
        self._call_back("assign", self._on_assign, assigned)

    def _on_partitions_revoked(self, partitions: Iterable[ClientPartition]) -> None:
        """Listen to a revocation. Runs inside `poll`."""
        taken = [TopicPartition(*partition) for partition in partitions]
        self._call_back("revoke", self._on_revoke, taken)
        self._commit_stored()
        self._forget([key_of(partition) for partition in partitions])

    def _on_partitions_lost(self, partitions: Iterable[ClientPartition]) -> None:
        """Listen to the loss of partitions. Runs inside `poll`."""
        self._forget([key_of(partition) for partition in partitions])
        taken = [TopicPartition(*partition) for partition in partitions]
        self._call_back("revoke", self._on_lost or self._on_revoke, taken)

    def _call_back(self, kind: str, callback: Callable[..., Any] | None, partitions: list[TopicPartition]) -> None:
        if callback is None:
            return
        self._rebalancing = kind
        try:
            callback(self, partitions)
        finally:
            self._rebalancing = None

    def _forget(self, keys: Iterable[Key]) -> None:
        """Forget the positions of partitions."""
        for key in keys:
            for offsets in (self._last, self._starts, self._stored, self._ends, self._offsets):
                offsets.pop(key, None)
            self._left_out.discard(key)

    @property
    def _is_eager(self) -> bool:
        strategy = self._settings.client["partition.assignment.strategy"]
        return "cooperative-sticky" not in strategy and self._settings.client["group.protocol"] == "classic"

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions from their offsets; inside on_assign, those of the group. Raises KafkaException, TypeError."""
        self._check()
        chosen = positions(partitions)
        if self._subscribed:
            keys = {(entry.topic, entry.partition) for entry in chosen}
            held = {key_of(partition) for partition in self._reader.assignment()}
            self._left_out = held - keys
            self._convert("", lambda: self._reader.pause([ClientPartition(*key) for key in self._left_out]))
            chosen = [entry for entry in chosen if (entry.topic, entry.partition) in held]
        else:
            self._commit_stored()
            self._convert("Failed to set assignment: ", lambda: self._reader.assign([]))
            self._forget(list({*self._last, *self._offsets}))
            targets = [_client_partition(entry) for entry in chosen]
            self._convert("Failed to set assignment: ", lambda: self._reader.assign(targets))
        self._start_at(chosen)

    def _start_at(self, partitions: Iterable[TopicPartition]) -> None:
        """Set positions to the offsets that an assignment names."""
        for entry in partitions:
            key = entry.topic, entry.partition
            self._offsets[key] = OFFSET_STORED if entry.offset == OFFSET_INVALID else entry.offset
            self._move(entry)

    def _move(self, partition: TopicPartition, default: int | None = None) -> None:
        """Set a position to an offset, absolute, logical or counted from the end; `default` is for OFFSET_INVALID."""
        target = _client_partition(partition)
        offset = partition.offset
        if offset in (OFFSET_STORED, OFFSET_INVALID) and default is not None:
            offset = default
        self._last.pop(key_of(target), None)
        self._starts.pop(key_of(target), None)
        if offset >= 0:
            self._starts[key_of(target)] = offset
            self._reader.seek(target, offset)
        elif offset == OFFSET_BEGINNING:
            self._reader.seek_to_beginning([target])
        elif offset == OFFSET_END:
            self._reader.seek_to_end([target])
        elif offset <= _TAIL:
            low, high = self._watermarks(target, 60_000)
            self._reader.seek(target, max(low, high - (_TAIL - offset)))

    def unassign(self) -> None:
        """Read no partition any more."""
        self._check()
        if self._subscribed:
            if self._rebalancing is None:
                self.assign([])
        else:
            self.assign([])

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment. Raises KafkaException."""
        self._check()
        chosen = positions(partitions)
        self._check_incremental()
        if self._subscribed:
            self._left_out -= {(entry.topic, entry.partition) for entry in chosen}
        else:
            targets = [*self._reader.assignment(), *(_client_partition(entry) for entry in chosen)]
            self._convert("", lambda: self._reader.assign(targets))
        self._start_at(chosen)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment. Raises KafkaException."""
        self._check()
        chosen = positions(partitions)
        self._check_incremental()
        held = self._own_keys()
        for entry in chosen:
            if (entry.topic, entry.partition) not in held:
                reason = (
                    f"{entry.topic} [{entry.partition}] can't be unassigned since it is not in the current assignment"
                )
                raise exception("_INVALID_ARG", reason)
        if self._rebalancing is None and not self._subscribed:
            gone = {_client_partition(entry) for entry in chosen}
            self._commit_stored()
            self._reader.assign([part for part in self._reader.assignment() if part not in gone])
            self._forget([(part.topic, part.partition) for part in gone])

    def _check_incremental(self) -> None:
        if self._subscribed and self._is_eager:
            raise exception(
                "_STATE",
                "Changes to the current assignment must be made using assign() when rebalance protocol type is EAGER",
            )

    def _own_keys(self) -> set[Key]:
        return {key_of(partition) for partition in self._reader.assignment()} - self._left_out

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions, with the offsets that they were assigned with."""
        self._check()
        return [TopicPartition(*key, self._offsets.get(key, OFFSET_STORED)) for key in sorted(self._own_keys())]

    # Records.

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message; None if none came within `timeout` seconds (-1: no limit). Runs callbacks.

        A message with an `error` is no record. Raises RuntimeError after `close`.
        """
        if self._closed:
            raise RuntimeError("Consumer closed")
        if self._events:
            self._events.serve()
        try:
            record = self._reader.take()
        except ClientError as error:
            return self._error_message(error)
        if record is not None:
            return self._message(record)
        return next(iter(self._wait(1, time.monotonic() + milliseconds(timeout) / 1000)), None)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` messages; fewer if `timeout` seconds pass before (-1: no limit). Runs callbacks."""
        self._check()
        most = operator.index(num_messages)
        if not 0 <= most <= _MOST:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        deadline = time.monotonic() + milliseconds(timeout) / 1000
        self._events.serve()
        messages: list[Message] = []
        while len(messages) < most:
            more = self._take_records(most - len(messages)) or self._wait(most - len(messages), deadline)
            if not more:
                break
            messages += more
        return messages

    def _take_records(self, most: int) -> list[Message]:
        try:
            return [self._message(record) for record in self._reader.take_many(most)]
        except ClientError as error:
            return [self._error_message(error)]

    def _message(self, record: Record) -> Message:
        """Return a record as a message, and store its offset."""
        origin = record.origin
        key = origin.topic, origin.partition
        following = record.offset + 1, origin.leader_epoch
        self._last[key] = following
        if self._stores:
            self._stored[key] = (*following, "")
        return Message.of(record)

    def _wait(self, most: int, deadline: float) -> list[Message]:
        """Return messages as soon as there are some; none after the deadline."""
        while True:
            self._commit_now_and_then()
            ends = self._new_ends(most)
            if ends:
                self._note_markers()
                return ends
            left = int(1000 * (deadline - time.monotonic()))
            try:
                self._step(max(min(left, _SLICE_MS), 0))
                messages = [self._message(record) for record in self._reader.take_many(most)]
            except ClientError as error:
                return [self._error_message(error)]
            if messages:
                return messages
            missing = self._missing_topic()
            if missing is not None:
                return [missing]
            self._events.serve()
            if left <= 0:
                self._note_markers()
                return []

    def _step(self, timeout_ms: int) -> None:
        if self._subscribed or self._reader.assignment():
            self._reader.step(timeout_ms)
        else:
            time.sleep(timeout_ms / 1000)

    def _error_message(self, error: ClientError) -> Message:
        """Return an error as a message."""
        if isinstance(error, IllegalState):
            self._check()
        self._events.report(error)
        converted = error_from(error)
        topic = None
        if isinstance(error, NoOffset):
            reason = "no previously committed offset available: Local: No offset stored"
            converted = KafkaError(converted.code(), reason)
            lacking = self._reader.lacking()
            topic = lacking[0].topic if lacking else None
            self._reader.seek_to_end(lacking)  # librdkafka leaves such a partition alone, Ottla raises again
        return Message(topic, None, None, None, converted.str().encode(), None, converted, (0, 0))

    def _new_ends(self, most: int) -> list[Message]:
        """Return a message for each partition whose end was reached (enable.partition.eof)."""
        if not self._shows_ends:
            return []
        messages = []
        for partition, leader, offset, epoch in self._reader.ends(self._ends)[:most]:
            self._ends[key_of(partition)] = offset
            text = f"Fetch from broker {leader} reached end of partition at offset {offset} (HighwaterMark {offset})"
            error = KafkaError(KafkaError._PARTITION_EOF, text)
            epoch_of = epoch if epoch >= 0 else None
            messages.append(Message(*partition, offset, None, text.encode(), None, error, (0, 0), None, epoch_of))
        return messages

    def _missing_topic(self) -> Message | None:
        """Return a message for a subscribed topic that does not exist, once."""
        if not self._subscribed or self._settings.client["allow.auto.create.topics"]:
            return None
        for topic in self._reader.subscription():
            if topic not in self._missing and self._reader.is_missing(topic):
                self._missing.add(topic)
                reason = f"Subscribed topic not available: {topic}: Broker: Unknown topic or partition"
                error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, reason)
                return Message(topic, 0, None, None, reason.encode(), None, error, (0, 0))
        return None

    # Positions.

    def seek(self, partition: TopicPartition) -> None:
        """Set the position of an assigned partition to its offset. Raises KafkaException."""
        self._check()
        prefix = f"Failed to seek to offset {partition.offset}: "
        key = partition.topic, partition.partition
        if key not in self._own_keys():
            raise self._error_of_unassigned(prefix, partition.topic)
        self._ends.pop(key, None)
        reset = OFFSET_BEGINNING if self._settings.client["auto.offset.reset"] == "earliest" else OFFSET_END
        self._convert(prefix, lambda: self._move(partition, reset))

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no records of these partitions until they are resumed."""
        self._pause(partitions, self._reader.pause)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume paused partitions."""
        self._pause(partitions, self._reader.resume)

    def _pause(self, partitions: list[TopicPartition], function: Callable[[list[ClientPartition]], None]) -> None:
        self._check()
        held = self._own_keys()
        chosen = [_client_partition(entry) for entry in positions(partitions) if (entry.topic, entry.partition) in held]
        self._convert("", lambda: function(chosen))

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the last records or markers of transactions; OFFSET_INVALID before one."""
        self._check()
        result = []
        for entry in positions(partitions):
            offset, epoch = self._last.get((entry.topic, entry.partition), (OFFSET_INVALID, -1))
            result.append(TopicPartition(entry.topic, entry.partition, offset, None, epoch))
        return result

    def _note_markers(self) -> None:
        """Move positions and stored offsets beyond the markers of transactions after the last records."""
        for key, offset, epoch in self._reader.passed_positions():
            before = self._last[key][0] if key in self._last else self._starts.get(key, offset)
            if offset > before:
                self._last[key] = offset, epoch
                if self._stores:
                    self._stored[key] = offset, epoch, ""

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return the first offset and the end offset of a partition; None if they did not come in time."""
        self._check()
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"expected TopicPartition, not {type(partition).__name__}")
        target = _client_partition(partition)
        if cached:
            return self._reader.watermarks(target)
        prefix = "Failed to get watermark offsets: "
        limit = milliseconds(timeout)
        try:
            if partition.partition not in self._reader.partitions_of(partition.topic, limit):
                raise exception("_UNKNOWN_PARTITION", f"{prefix}Local: Unknown partition")
            return self._watermarks(target, limit)
        except RequestTimedOut:
            return None
        except ClientError as error:
            raise prefix_error(prefix, error) from None

    def _watermarks(self, partition: ClientPartition, timeout_ms: int) -> tuple[int, int]:
        low, high = (
            self._reader.offsets_at({partition: at}, timeout_ms)[partition].offset for at in (EARLIEST, LATEST)
        )
        return low, high

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the first offsets at or after the times (ms) in the offsets; OFFSET_END if no record is that new."""
        self._check()
        moments = {_client_partition(entry): entry.offset for entry in positions(partitions)}
        limit = milliseconds(timeout)
        results = self._convert("Failed to get offsets: ", lambda: self._reader.offsets_at(moments, limit))
        return [TopicPartition(*part, row.offset, None, row.leader_epoch) for part, row in results.items()]

    # Commits.

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store the offset after a message, or offsets, for the next commit (enable.auto.offset.store=false).

        Raises KafkaException, ValueError, TypeError.
        """
        self._check()
        chosen = self._choose_offsets(message, offsets)
        if chosen is None:
            raise ValueError("expected either message or offsets")
        if self._stores:
            raise exception("_INVALID_ARG", "StoreOffsets failed: Local: Invalid argument or configuration")
        held = self._own_keys()
        for entry in chosen:
            if (entry.topic, entry.partition) not in held:
                raise self._error_of_unassigned("StoreOffsets failed: ", entry.topic)
        for entry in chosen:
            epoch = -1 if entry.leader_epoch is None else entry.leader_epoch
            self._stored[entry.topic, entry.partition] = entry.offset, epoch, entry.metadata or ""

    @staticmethod
    def _choose_offsets(message: Message | None, offsets: list[TopicPartition] | None) -> list[TopicPartition] | None:
        """Return the offsets that a call names; None if it names none. Raises ValueError, TypeError, KafkaException."""
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is not None:
            if not isinstance(message, Message):
                raise TypeError("expected confluent_kafka.cimpl.Message")
            error = message.error()
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if error is not None or topic is None or partition is None or offset is None:
                raise KafkaException(error or KafkaError(KafkaError._INVALID_ARG))
            return [TopicPartition(topic, partition, offset + 1, None, message.leader_epoch())]
        return None if offsets is None else positions(offsets)

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the offset after a message, or offsets, or what is stored.

        asynchronous  return at once; on_commit gets the outcome inside `poll`

        Return the committed offsets, None with `asynchronous`. Raises KafkaException.
        """
        self._check()
        chosen = self._choose_offsets(message, offsets)
        of_all = chosen is None
        if chosen is None:
            chosen = self._stored_offsets()
        mapping = _mapping(chosen)
        if not mapping:
            if asynchronous:
                return None
            raise exception("_NO_OFFSET", "Commit failed: Local: No offset stored")
        if of_all:
            self._stored.clear()
        if asynchronous:
            self._commit_soon(chosen, mapping)
            return None
        self._convert("Commit failed: ", lambda: self._reader.commit(mapping))
        return chosen

    def _stored_offsets(self) -> list[TopicPartition]:
        """Return what is stored of all assigned partitions, OFFSET_INVALID for the others."""
        rows = []
        for key in sorted(self._own_keys() | set(self._stored)):
            offset, epoch, metadata = self._stored.get(key, (OFFSET_INVALID, -1, ""))
            rows.append(TopicPartition(*key, offset, metadata or None, epoch))
        return rows

    def _commit_soon(self, chosen: list[TopicPartition], mapping: dict[ClientPartition, OffsetAndMetadata]) -> None:
        """Commit in the background; have on_commit called."""

        def on_done(error: ClientError | None, _: object) -> None:
            if error is not None:
                self._events.report(error)
            if self._on_commit is not None:
                self._events.add(self._on_commit, None if error is None else error_from(error), chosen)

        self._convert("Commit failed: ", lambda: self._reader.commit_async(mapping, on_done))

    def _commit_now_and_then(self) -> None:
        """Commit what is stored if auto.commit.interval.ms has passed (enable.auto.commit)."""
        if not self._commits or not self._stored or time.monotonic() - self._committed_at < self._interval:
            return
        self._committed_at = time.monotonic()
        chosen = self._stored_offsets()
        self._stored.clear()
        self._commit_soon(chosen, _mapping(chosen))

    def _commit_stored(self) -> None:
        """Commit what is stored and wait (enable.auto.commit): before partitions are given up."""
        if self._commits and self._stored:
            chosen = self._stored_offsets()
            self._stored.clear()
            with suppress(ClientError):
                self._reader.commit(_mapping(chosen), 10)

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the committed offsets of the group; OFFSET_INVALID for partitions without one. Raises KafkaException."""
        self._check()
        chosen = [_client_partition(entry) for entry in positions(partitions)]
        limit = None if timeout < 0 else timeout
        results = self._convert("Failed to get committed offsets: ", lambda: self._reader.committed(chosen, limit))
        none = OffsetAndMetadata(OFFSET_INVALID)
        rows = [(part, results.get(part, none)) for part in chosen]
        return [
            TopicPartition(part.topic, part.partition, row.offset, row.metadata or None, row.leader_epoch)
            for part, row in rows
        ]

    # The client.

    def consumer_group_metadata(self) -> bytes:
        """Return the identity of this member for a producer's transaction, as opaque bytes."""
        self._check()
        return opaque_group_metadata(self._reader.consumer_group_metadata())

    def memberid(self) -> str | None:
        """Return the member id; None before the consumer has joined its group."""
        self._check()
        return (self._reader.consumer_group_metadata().member_id or None) if self._subscribed else None

    def _statistics(self) -> dict[str, Any]:
        reader = self._reader
        values = statistics("consumer", reader.config["client.id"], 0, reader.metrics(), reader.brokers())
        topics = values["topics"]
        for part in reader.assignment():
            low, high = reader.watermarks(part)
            lag = reader.lag(part)
            row = topics.setdefault(part.topic, {"topic": part.topic, "partitions": {}})
            row["partitions"][str(part.partition)] = {
                "partition": part.partition,
                "lo_offset": low,
                "hi_offset": high,
                "consumer_lag": -1 if lag is None else lag,
                "app_offset": self._last.get(key_of(part), (OFFSET_INVALID, -1))[0],
                "stored_offset": self._stored.get(key_of(part), (OFFSET_INVALID, -1, ""))[0],
            }
        values["cgrp"] = {"state": "up", "assignment_size": len(reader.assignment()), "rebalance_cnt": 0}
        return values

    def _error_of_unassigned(self, prefix: str, topic: str) -> KafkaException:
        """Return the error for a partition that is not assigned: another one if its topic is not known, either."""
        code = "_STATE" if self._reader.knows(topic) else "_UNKNOWN_PARTITION"
        return exception(code, prefix + CODES[NUMBERS[code]][1])

    def _convert(self, prefix: str, function: Callable[[], T]) -> T:
        """Call a function; raise its error as librdkafka does."""
        try:
            return function()
        except ClientError as error:
            raise prefix_error(prefix, error) from None

    def close(self) -> None:
        """Call on_revoke, commit what is stored (enable.auto.commit), leave the group, close the connections."""
        if self._closed:
            return
        try:
            if not self._reader.closed:
                self._leave()
                self._events.serve()
        finally:
            self._closed = True
            self._reader.close()


def _mapping(offsets: Iterable[TopicPartition]) -> dict[ClientPartition, OffsetAndMetadata]:
    """Return the offsets that can be committed."""
    return {
        _client_partition(entry): OffsetAndMetadata(
            entry.offset, entry.metadata or "", -1 if entry.leader_epoch is None else entry.leader_epoch
        )
        for entry in offsets
        if entry.offset >= 0
    }


def _escape_name(name: str) -> str:
    return "^" + "".join(letter if letter.isalnum() or letter in "_-" else f"[{letter}]" for letter in name) + "$"


def _whole(pattern: str) -> str:
    """Return a pattern that matches whole names where librdkafka's matches from `^` on."""
    body = pattern.removeprefix("^")
    return body.removesuffix("$") if body.endswith("$") else f"{body}.*"
