"""Commits offsets of a group and fetches committed ones, at the group's coordinator.

An offset belongs to one topic id, not to every topic of its name: a commit keeps the topic id of its first attempt, or of the
committed position, so that it never reaches a recreated topic. OffsetCommit 10 identifies topics by id. With older versions
the id is compared with the metadata before each attempt; a topic recreated before the broker handles the request is missed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ottla.client.coordinator import GROUP, CoordinatorClient
from ottla.client.core import Core
from ottla.client.errors import KafkaError, Permission, RetriableError, StaleMetadata, UnknownTopic, error_for
from ottla.client.groups import GroupMetadata, OffsetAndMetadata
from ottla.client.metrics import Sensor
from ottla.client.topics import TopicPartition
from ottla.net.connection import Link
from ottla.protocol import errors as table
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.schema import ZERO_UUID

OnCommit = Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None]
_NEWEST_WITHOUT_IDS: Final = 9
_NEWEST_BY_TOPIC: Final = 7
"""Newest version of OffsetFetch for a single group; later ones contain several groups."""
_DELETED: Final = frozenset({table.UNKNOWN_TOPIC_ID, table.UNKNOWN_TOPIC_OR_PARTITION})


class _Commit:
    """State of a commit over all its attempts.

    ids        topic id of each partition; missing if no broker has returned one
    unknown    ids that are unknown to the coordinator
    automatic  whether partitions of deleted topics are left out in place of an error
    """

    __slots__ = ("about", "automatic", "ids", "offsets", "unknown")

    def __init__(
        self,
        about: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[TopicPartition, bytes],
        *,
        automatic: bool,
    ) -> None:
        self.about = about
        self.offsets = offsets
        self.ids = dict(topic_ids)
        self.unknown: set[bytes] = set()
        self.automatic = automatic


class Commits:
    """Client for the committed offsets of one group.

    latency    times in ms from OffsetCommit requests to their responses
    """

    def __init__(self, core: Core, group_id: str, on_commit: OnCommit | None = None) -> None:
        """on_commit  called with the offsets that a coordinator has committed."""
        self.latency = Sensor()
        self._on_commit = on_commit
        self._core = core
        self._group_id = group_id
        self._coordinator = CoordinatorClient(core.metadata, GROUP, group_id)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: Callable[[], GroupMetadata],
        timeout_ms: int | None = None,
        *,
        topic_ids: Mapping[TopicPartition, bytes] | None = None,
    ) -> None:
        """Commit offsets as a member, or without membership (generation -1). Raises the first error that is not retriable:
        for example FencedError if the member was removed, UnknownTopic if a topic was deleted and recreated.

        member     called before each attempt, as the epoch of the member may change meanwhile
        topic_ids  known topic ids of the offsets
        """
        if offsets:
            commit = _Commit(self._about, offsets, topic_ids or {}, automatic=False)
            await self._core.metadata.retrying(self._about, lambda: self._attempt(commit, member()), timeout_ms)

    async def commit_positions(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: Callable[[], GroupMetadata],
        timeout_ms: int,
        *,
        topic_ids: Mapping[TopicPartition, bytes],
    ) -> None:
        """Commit positions automatically, as `commit` does, but ignore positions in deleted topics."""
        if offsets:
            commit = _Commit(self._about, offsets, topic_ids, automatic=True)
            await self._core.metadata.retrying(self._about, lambda: self._attempt(commit, member()), timeout_ms)

    async def commit_positions_once(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: GroupMetadata,
        *,
        topic_ids: Mapping[TopicPartition, bytes],
    ) -> None:
        """Commit positions automatically in a single attempt. Raises retriable errors, too."""
        if offsets:
            await self._attempt(_Commit(self._about, offsets, topic_ids, automatic=True), member)

    @property
    def _about(self) -> str:
        return f"commit offsets of group {self._group_id}"

    async def _attempt(self, commit: _Commit, member: GroupMetadata) -> None:
        link = await self._coordinator.link()
        by_id = link.version(OffsetCommitRequest) > _NEWEST_WITHOUT_IDS
        partitions, refused = await self._partitions(commit, by_id=by_id)
        if partitions:
            await self._send(commit, partitions, link, member)
            if self._on_commit is not None:
                self._on_commit({partition: commit.offsets[partition] for partition in partitions})
        if refused is not None and not commit.automatic:
            raise refused

    async def _partitions(
        self, commit: _Commit, *, by_id: bool
    ) -> tuple[dict[TopicPartition, bytes], KafkaError | None]:
        """Return the partitions to send with the ids of their topics (ZERO_UUID: by name), and the error of the others."""
        offsets, ids = commit.offsets, commit.ids
        missing = [part for part in offsets if part not in ids]
        current = await self._ids({part.topic for part in missing})
        ids.update({part: current[part.topic] for part in missing if current[part.topic] != ZERO_UUID})
        # The coordinator checks the ids of a request with ids, as the metadata may be outdated. The metadata is used for
        # ids that the coordinator does not know, and for requests with names.
        by_id = by_id and all(part in ids for part in offsets)
        doubtful = [part for part in offsets if part in ids and (not by_id or ids[part] in commit.unknown)]
        current = await self._ids({part.topic for part in doubtful})
        error: KafkaError | None = None
        left_out = set()
        for part in doubtful:
            topic_id = current[part.topic]
            if topic_id == ids[part] or (topic_id == ZERO_UUID and by_id):
                continue
            left_out.add(part)
            if topic_id != ZERO_UUID:
                error = UnknownTopic(f"{commit.about}: topic {part.topic} was deleted and created again")
            else:
                error = error or StaleMetadata(f"{commit.about}: topic {part.topic} does not exist")
        return {part: ids.get(part, ZERO_UUID) for part in offsets if part not in left_out}, error

    async def _send(
        self, commit: _Commit, partitions: dict[TopicPartition, bytes], link: Link, member: GroupMetadata
    ) -> None:
        newest = 32767 if ZERO_UUID not in partitions.values() else _NEWEST_WITHOUT_IDS
        version = link.version(OffsetCommitRequest, newest)
        topics: dict[tuple[str, bytes], OffsetCommitRequestTopic] = {}
        for part, topic_id in partitions.items():
            name, offset = part.topic, commit.offsets[part]
            topic = topics.setdefault((name, topic_id), OffsetCommitRequestTopic(name=name, topic_id=topic_id))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=part.partition,
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
        sent_ms = self._core.clock.now_ms()
        answer = await self._coordinator.response(link.request(request, version))
        now_ms = self._core.clock.now_ms()
        self.latency.record(now_ms - sent_ms, now_ms)
        names = {topic_id: part.topic for part, topic_id in partitions.items()}
        denied = tuple(
            topic_answer.name or names[topic_answer.topic_id]
            for topic_answer in answer.topics
            if any(row.error_code == table.TOPIC_AUTHORIZATION_FAILED for row in topic_answer.partitions)
        )
        for topic_answer in answer.topics:
            for row in topic_answer.partitions:
                if row.error_code == table.UNKNOWN_TOPIC_ID:
                    commit.unknown.add(topic_answer.topic_id)
                if not (commit.automatic and row.error_code in _DELETED):
                    self._check(row.error_code, commit.about, denied)

    async def _ids(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the topic ids, ZERO_UUID if unknown."""
        ids = {}
        for name in names:
            try:
                ids[name] = (await self._core.metadata.topic(name)).id
            except UnknownTopic:
                ids[name] = ZERO_UUID
        return ids

    async def fetch(
        self,
        partitions: Iterable[TopicPartition],
        member: Callable[[], GroupMetadata],
        timeout_ms: int | None = None,
        *,
        stable: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets; partitions without a commit are left out.

        stable  wait for open transactions that commit offsets; otherwise return the offsets committed before them
        """
        requested = list(partitions)
        about = f"offsets of group {self._group_id}"
        if not requested:
            return {}
        return await self._core.metadata.retrying(
            about, lambda: self._fetch(requested, member(), about, stable=stable), timeout_ms
        )

    async def _fetch(
        self, partitions: list[TopicPartition], member: GroupMetadata, about: str, *, stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        link = await self._coordinator.link()
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
        answer = await self._coordinator.response(link.request(request, version))
        return self._offsets_from(answer, version, {topic_id: name for name, topic_id in ids.items()}, about)

    def _offsets_from(
        self, answer: OffsetFetchResponse, version: int, names: dict[bytes, str], about: str
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        whole = answer if version <= _NEWEST_BY_TOPIC else answer.groups[0]
        self._check(whole.error_code, about, ())
        offsets = {}
        for topic in whole.topics:
            for row in topic.partitions:
                self._check(row.error_code, about, (topic.name or names[getattr(topic, "topic_id", ZERO_UUID)],))
                if row.committed_offset >= 0:
                    name = topic.name or names[getattr(topic, "topic_id", ZERO_UUID)]
                    offset = OffsetAndMetadata(row.committed_offset, row.metadata or "", row.committed_leader_epoch)
                    offsets[TopicPartition(name, row.partition_index)] = offset
        return offsets

    def _check(self, code: int, about: str, topics: tuple[str, ...]) -> None:
        if code != table.NONE:
            self._coordinator.note(code)
            error = error_for(
                code, about, None, Permission("Read", "group", (self._group_id,)), Permission("Read", "topic", topics)
            )
            # Retriable: the next heartbeat returns the new epoch (KIP-848), or the error that the member was removed.
            raise RetriableError(str(error), code) if code == table.STALE_MEMBER_EPOCH else error


def is_membership_lost(error: KafkaError) -> bool:
    """Return True if an error means that the member was removed from the group, or is of an older generation."""
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
