"""Final reading of a cluster: every partition of the workload, and the committed offsets of the groups."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from ottla.client.admin.core import AdminCore
from ottla.client.consumer.core import ConsumerCore
from ottla.client.core import Core
from ottla.client.errors import KafkaError
from ottla.client.topics import LATEST, TopicPartition
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.protocol.errors import UNKNOWN_TOPIC_OR_PARTITION

from .applications import GROUPS, TOPICS
from .clients import Application, ClientProcess, Polling
from .history import Read

_OFFSETS_PARTITIONS: Final = 2
_OPEN_US: Final = 15_000_000
"""Time after which a last stable offset that does not grow is that of a transaction which stays open: time-outs are 10 s."""
_MOST_WAIT_US: Final = 40_000_000
"""Time to wait for an end of all transactions; clients may begin new ones."""
_RETRY_MS: Final = 200
_Ends = Mapping[TopicPartition, int]


class Auditor(Application):
    """Reads the committed records of every partition from its beginning, and apart from them what open transactions hold back.

    requires_stable  whether to wait for open transactions that commit offsets
    """

    def __init__(self, process: ClientProcess, *, requires_stable: bool = True) -> None:
        super().__init__(process)
        self._requires_stable = requires_stable
        self._core = process.core(isolation_level="read_committed", auto_offset_reset="none")
        self._committed = ConsumerCore(self._core)
        self._all = ConsumerCore(process.core(isolation_level="read_uncommitted", auto_offset_reset="none"))

    @property
    def main(self) -> Core:
        return self._core

    async def run(self) -> None:
        history = self.process.history
        partitions = [TopicPartition(name, number) for name, count in TOPICS.items() for number in range(count)]
        stable, ends = await self._at_rest(partitions)
        await self._read_commits()
        history.reads += await self._read(self._committed, dict.fromkeys(partitions, 0), stable)
        blocked = {part: stable[part] for part in partitions if stable[part] < ends[part]}
        if blocked:
            history.blocked += await self._read(self._all, blocked, ends)
        self._all.core.close()
        self._core.close()

    async def _at_rest(self, partitions: Iterable[TopicPartition]) -> tuple[_Ends, _Ends]:
        """Return the last stable offsets and the ends, once every transaction has ended or is found to stay open."""
        process, offsets = (
            self.process,
            [TopicPartition(OFFSETS_TOPIC, number) for number in range(_OFFSETS_PARTITIONS)],
        )
        until_us, since = process.world.now_us + _MOST_WAIT_US, dict[TopicPartition, tuple[int, int]]()
        while True:
            stable, ends = await self._ends(self._committed, partitions), await self._ends(self._all, partitions)
            with suppress(KafkaError):  # without groups there is no such topic
                stable |= await self._ends(self._committed, offsets)
                ends |= await self._ends(self._all, offsets)
            now_us = process.world.now_us
            for part, offset in stable.items():
                if since.get(part, (-1, 0))[0] != offset:
                    since[part] = offset, now_us
            blocked = [part for part, offset in stable.items() if offset < ends[part]]
            left_open = [part for part in blocked if now_us - since[part][1] >= _OPEN_US]
            if blocked == left_open or now_us >= until_us:
                process.history.open_transactions.update({process.key(*part): stable[part] for part in left_open})
                return stable, ends
            await self._core.scheduler.sleep(_RETRY_MS)

    async def _ends(self, consumer: ConsumerCore, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        while True:
            try:
                offsets = await consumer.offsets_at(dict.fromkeys(partitions, LATEST))
                return {part: end.offset for part, end in offsets.items()}
            except KafkaError as error:
                self.process.note_error("ends", error)
                if error.code == UNKNOWN_TOPIC_OR_PARTITION:
                    raise

    async def _read(self, consumer: ConsumerCore, starts: _Ends, ends: _Ends) -> list[Read]:
        """Return the records of partitions from an offset (inclusive) to another one (exclusive)."""
        process, reads = self.process, list[Read]()
        consumer.assign(list(starts))
        for part, offset in starts.items():
            consumer.seek(part, offset)
        polling = Polling(consumer)
        while any([await consumer.position(part, 10_000) < ends[part] for part in starts]):
            try:
                for record in await polling.records(500, 500):
                    key = process.key(record.origin.topic, record.origin.partition)
                    reads.append(Read(key, record.offset, (record.value or b"").decode()))
            except KafkaError as error:
                process.note_error("read", error)
        return reads

    async def _read_commits(self) -> None:
        """Record the committed offsets of all groups."""
        process, admin, done = self.process, AdminCore(self._core), False
        while not done:
            try:
                groups = await admin.list_consumer_group_offsets(
                    GROUPS, require_stable=self._requires_stable, timeout=10
                )
                for group in GROUPS:
                    for partition, committed in groups[group].items():
                        process.history.final_commits[group, process.key(*partition)] = committed.offset
                done = True
            except KafkaError as error:
                process.note_error("committed offsets", error)
                await self._core.scheduler.sleep(_RETRY_MS)
