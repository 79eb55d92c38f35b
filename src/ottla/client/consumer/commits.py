"""Committed offsets of a group: written and read at its coordinator."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ottla.client.core import Core
from ottla.client.errors import KafkaError, RetriableError, UnknownTopic, error_for
from ottla.client.groups import GroupMetadata, OffsetAndMetadata
from ottla.client.metadata import COORDINATOR_LINK, GROUP
from ottla.client.topics import TopicPartition
from ottla.protocol import errors as table
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.schema import ZERO_UUID

_NEWEST_WITHOUT_IDS: Final = 9
_NEWEST_BY_TOPIC: Final = 7
"""OffsetFetch names one group and its topics up to 7, several groups from 8 on."""


class Commits:
    """The committed offsets of one group."""

    def __init__(self, core: Core, group_id: str) -> None:
        self._core = core
        self._group_id = group_id

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: Callable[[], GroupMetadata],
        timeout_ms: int | None = None,
    ) -> None:
        """Commit offsets as a member, or without one (generation -1). Raises what the first partition met that time does not
        mend: FencedError and the like when the member was removed.

        member  asked before each attempt: its epoch may change meanwhile
        """
        if offsets:
            about = f"commit offsets of group {self._group_id}"
            await self._core.metadata.retrying(about, lambda: self._commit(offsets, member(), about), timeout_ms)

    async def _commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupMetadata, about: str
    ) -> None:
        metadata = self._core.metadata
        node = await metadata.coordinator(GROUP, self._group_id)
        link = await self._core.network.ready(node, COORDINATOR_LINK)
        ids = await self._ids({part.topic for part in offsets})
        version = link.version(OffsetCommitRequest, 32767 if ZERO_UUID not in ids.values() else _NEWEST_WITHOUT_IDS)
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, index), offset in offsets.items():
            topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name, topic_id=ids[name]))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            topics=list(topics.values()),
        )
        if version >= 7:
            request.group_instance_id = member.group_instance_id
        answer: OffsetCommitResponse = await link.request(request, version)
        for row in (row for topic in answer.topics for row in topic.partitions):
            self._check(row.error_code, about)

    async def _ids(self, names: Iterable[str]) -> dict[str, bytes]:
        """Topic ids, zero for what is not known: names do as well."""
        found = {}
        for name in names:
            try:
                found[name] = (await self._core.metadata.topic(name)).id
            except UnknownTopic:
                found[name] = ZERO_UUID
        return found

    async def fetch(
        self,
        partitions: Iterable[TopicPartition],
        member: Callable[[], GroupMetadata],
        timeout_ms: int | None = None,
        *,
        stable: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is committed; partitions without a commit are left out.

        stable  transactions that are about to commit something are waited for; otherwise it is what was committed before
        """
        wanted = list(partitions)
        about = f"offsets of group {self._group_id}"
        if not wanted:
            return {}
        return await self._core.metadata.retrying(
            about, lambda: self._fetch(wanted, member(), about, stable=stable), timeout_ms
        )

    async def _fetch(
        self, partitions: list[TopicPartition], member: GroupMetadata, about: str, *, stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        metadata = self._core.metadata
        node = await metadata.coordinator(GROUP, self._group_id)
        link = await self._core.network.ready(node, COORDINATOR_LINK)
        ids = await self._ids({part.topic for part in partitions})
        version = link.version(OffsetFetchRequest, 32767 if ZERO_UUID not in ids.values() else _NEWEST_WITHOUT_IDS)
        request = OffsetFetchRequest()
        if version >= 7:
            request.require_stable = stable
        named: dict[str, list[int]] = {}
        for name, index in partitions:
            named.setdefault(name, []).append(index)
        if version <= _NEWEST_BY_TOPIC:
            request.group_id = self._group_id
            request.topics = [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in named.items()
            ]
        else:
            topics = [
                OffsetFetchRequestTopics(name=name, topic_id=ids[name], partition_indexes=indexes)
                for name, indexes in named.items()
            ]
            group = OffsetFetchRequestGroup(group_id=self._group_id, topics=topics)
            if member.generation >= 0 and member.member_id:
                group.member_id, group.member_epoch = member.member_id, member.generation
            request.groups = [group]
        answer: OffsetFetchResponse = await link.request(request, version)
        return self._found(answer, version, {found: name for name, found in ids.items()}, about)

    def _found(
        self, answer: OffsetFetchResponse, version: int, names: dict[bytes, str], about: str
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        whole = answer if version <= _NEWEST_BY_TOPIC else answer.groups[0]
        self._check(whole.error_code, about)
        found = {}
        for topic in whole.topics:
            for row in topic.partitions:
                self._check(row.error_code, about)
                if row.committed_offset >= 0:
                    name = topic.name or names[getattr(topic, "topic_id", ZERO_UUID)]
                    offset = OffsetAndMetadata(row.committed_offset, row.metadata or "", row.committed_leader_epoch)
                    found[TopicPartition(name, row.partition_index)] = offset
        return found

    def _check(self, code: int, about: str) -> None:
        if code != table.NONE:
            self._core.metadata.elsewhere(GROUP, self._group_id, code)
            error = error_for(code, about)
            # The next heartbeat brings the new epoch (KIP-848), or says that the member was removed.
            raise RetriableError(str(error), code) if code == table.STALE_MEMBER_EPOCH else error


def lost_membership(error: KafkaError) -> bool:
    """Whether an error says that the member is none any more, or of an older generation."""
    return error.code in _LOST


_LOST: Final = frozenset(
    {
        table.UNKNOWN_MEMBER_ID,
        table.ILLEGAL_GENERATION,
        table.FENCED_INSTANCE_ID,
        table.REBALANCE_IN_PROGRESS,
        table.STALE_MEMBER_EPOCH,
        table.FENCED_MEMBER_EPOCH,
    }
)
