"""Ottla's consumer as the one of librdkafka's calls needs it: single steps, ends of partitions, offsets with a limit."""

from ottla.client import blocking
from ottla.client.config import ClientConfig
from ottla.client.consumer.positions import UNKNOWN
from ottla.client.topics import FoundOffset
from ottla.client.topics import TopicPartition as ClientPartition
from ottla.compat.librdkafka.handle import Handle
from ottla.compat.librdkafka.metadata import bounded
from ottla.compat.librdkafka.values import OFFSET_INVALID
from ottla.records.record import Record

Key = tuple[str, int]
"""Topic and partition."""


def key_of(partition: ClientPartition) -> Key:
    """Return a partition of Ottla's client as a plain pair."""
    return partition.topic, partition.partition


class Reader(Handle, blocking.Consumer):
    """Ottla's consumer, with what librdkafka's needs of its core."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)  # type: ignore[arg-type]  # Blocking takes parsed configs, too

    def take(self) -> Record | None:
        """Return a record that has been fetched, or None."""
        return self._consumer.take()

    def take_many(self, most: int) -> list[Record]:
        """Return records that have been fetched."""
        return self._consumer.take_many(most)

    def step(self, timeout_ms: int) -> None:
        """Wait until records may be there, at most `timeout_ms`, and run rebalance listeners. Raises KafkaError."""
        event = self._run(self._consumer.wait(timeout_ms))
        if not isinstance(event, bool):
            self._run_listener(event)

    def ends(self, reported: dict[Key, int]) -> list[tuple[ClientPartition, int, int, int]]:
        """Return partitions that have been read to their end, since the offset in `reported`: with leader, offset, epoch."""

        def look() -> list[tuple[ClientPartition, int, int, int]]:
            core, ends = self._consumer, []
            for partition, state in core._positions.states.items():
                lag = None if state.paused or state.position == UNKNOWN else core.lag(partition)
                if lag == 0 and reported.get(key_of(partition)) != state.position:
                    info = core.core.metadata.known(partition.topic)
                    leader = -1 if info is None else info.leaders.get(partition.partition, -1)
                    ends.append((partition, leader, state.position, state.epoch_before(state.position)))
            return ends

        return self._call(look)

    def passed_positions(self) -> list[tuple[Key, int, int]]:
        """Return each partition with a position, its offset and epoch, after `take` has returned None: markers are passed.

        Reads what `take` has written in the same thread; a copy, as a rebalance changes the partitions in the client's thread.
        """
        states = list(self._consumer._positions.states.values())
        return [
            (key_of(state.partition), state.position, state.epoch_before(state.position))
            for state in states
            if state.position != UNKNOWN
        ]

    def knows(self, topic: str) -> bool:
        """Return whether the metadata of a topic has come."""
        return self._call(lambda: self._core.metadata.known(topic) is not None)

    def lacking(self) -> list[ClientPartition]:
        """Return the partitions without a position."""
        return self._call(lambda: [state.partition for state in self._consumer._positions.lacking()])

    def is_missing(self, topic: str) -> bool:
        """Return whether the brokers have no such topic."""
        return self._call(lambda: self._core.metadata.is_missing(topic))

    def watermarks(self, partition: ClientPartition) -> tuple[int, int]:
        """Return the log start offset and the end offset that the last fetch has returned."""

        def look() -> tuple[int, int]:
            state = self._consumer._positions.states.get(partition)
            if state is None or state.high_watermark == UNKNOWN:
                return OFFSET_INVALID, OFFSET_INVALID
            return max(state.log_start, 0), state.high_watermark

        return self._call(look)

    def offsets_at(self, moments: dict[ClientPartition, int], timeout_ms: int) -> dict[ClientPartition, FoundOffset]:
        """Return offsets by timestamp. Raises KafkaError."""
        return self._run(bounded(self._core, self._consumer.offsets_at(moments), timeout_ms))

    def partitions_of(self, topic: str, timeout_ms: int) -> set[int]:
        """Return the partitions of a topic. Raises KafkaError."""
        info = self._run(bounded(self._core, self._core.metadata.topic(topic), timeout_ms))
        return set(info.leaders)
