"""Share partitions and share sessions of this broker (KIP-932).

    member -> handlers -> LedSharePartition -> SharePartition (decides)
                               |    |
                     log: headers   share coordinator: states, one write at a time

Shared by all share partitions: the configs of their groups, access to the share coordinator, the sessions of members, and one
alarm for the end of all locks.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.config import BrokerConfig
from ottla.broker.coordination.coordinators import Coordination
from ottla.broker.share_partitions.dead_letters import DeadLetterWriter
from ottla.broker.share_partitions.led_partition import AcknowledgementResult, GroupRules, LedSharePartition
from ottla.coordinators.share.acknowledgement import GAP, RENEW, Acknowledgement, DeliveryLimits
from ottla.coordinators.share.partition import NEVER
from ottla.coordinators.share.session import Member, ShareSession, ShareSessions, TopicIdPartition
from ottla.coordinators.share.state import (
    ReadState,
    StateOutcome,
    StateRead,
    StateReset,
    WriteState,
    read_state,
    write_state,
)
from ottla.coordinators.share.window import DeadLetters
from ottla.environment import Clock
from ottla.log import reading
from ottla.log.log import READ_COMMITTED, READ_UNCOMMITTED
from ottla.metadata.configs import duration_ms, group_configs
from ottla.metadata.configs.alteration import GROUP
from ottla.metadata.features import feature_level
from ottla.metadata.image import SHARE_STATE_TOPIC, Delta
from ottla.metadata.metadata import Metadata
from ottla.protocol.context import Peer
from ottla.protocol.errors import (
    INVALID_REQUEST,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
    error,
)
from ottla.replication.replicas import Replicas
from ottla.tasks.deferred import Answer, gather
from ottla.tasks.due_work import DueWork
from ottla.tasks.scheduler import Scheduler

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.replication.partition import Partition

_NOTHING: Final[Mapping[TopicIdPartition, "LedSharePartition"]] = MappingProxyType({})
_SHARE_VERSION: Final = "share.version"
_FIRST_WITH_DEAD_LETTERS: Final = 2
_LONGEST_MEMBER_ID: Final = 36
_MOST_RULES: Final = 10_000
"""Number of groups whose configs are kept; clients name any group."""
_WRITE_ATTEMPTS: Final = 100
_WRITE_RETRY_MS: Final = 50


class Acks(Protocol):
    """Acknowledgement batch of a ShareFetch or ShareAcknowledge request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


def _makes_sense(batches: Sequence[Acks], *, is_renewal: bool) -> bool:
    """Return whether acknowledgements are valid."""
    reached = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last or first < reached or not types or (len(types) > 1 and len(types) != last - first + 1):
            return False
        reached = last
        if min(types) < GAP or max(types) > RENEW or (not is_renewal and RENEW in types):
            return False
    return True


class SharePartitions:
    """The share partitions and share sessions of this broker.

    config        returns the broker's configs in force
    dead_letters  writes dead letters
    acknowledged  number of acknowledged records by the code of the acknowledgement
    """

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        tasks: Scheduler,
        metadata: Metadata,
        replicas: Replicas,
        coordination: Coordination,
        dead_letters: DeadLetterWriter,
    ) -> None:
        self._config = config
        self._clock = clock
        self.tasks = tasks
        self._metadata = metadata
        self._replicas = replicas
        self._coordinators = coordination.share_coordinators
        self.sessions = ShareSessions(config().integer("group.share.max.share.sessions"))
        self.acknowledged: Counter[int] = Counter()
        self._shared: dict[str, dict[TopicIdPartition, LedSharePartition]] = {}
        self._rules: dict[str, GroupRules] = {}
        self._rules_from: tuple[object, object, object] = (None, None, None)
        """Configs of the metadata and of the broker, and features, from which `_rules` were read."""
        """Rules by group, with their inputs: the configs of resources, those of the broker, and the features."""
        self._dead_letters = dead_letters
        self._alarms: list[tuple[int, int, LedSharePartition]] = []
        """A heap of (deadline, number, share partition); an entry is void when the share partition's deadline differs."""
        self._numbers = 0
        self._alarm = DueWork("a timer of share partitions", self._run_due, clock, tasks)
        coordination.share_resets.append(self._reset)

    # Services for share partitions.

    def now(self) -> int:
        """Time in ms on the clock of the locks."""
        return self._clock.now_ms()

    def read(self, request: ReadState) -> Answer[StateRead]:
        """Read a state at the share coordinator."""
        if SHARE_STATE_TOPIC not in self._metadata.image.topics:
            return StateRead(UNKNOWN_SERVER_ERROR, None)
        return self._coordinators.run(read_state, request)

    def write(self, request: WriteState) -> Answer[StateOutcome]:
        """Write a state to the share coordinator, and repeat that for some seconds while it moves to another broker.

        A repeated write has the effect of the first one, and leader epoch and state epoch fence it from those of later leaders.
        """
        return self._coordinators.run_when_available(
            write_state, request, attempts=_WRITE_ATTEMPTS, pause_ms=_WRITE_RETRY_MS
        )

    def rules(self, group_id: str) -> GroupRules:
        """The group's current configs."""
        image, config = self._metadata.image, self._config()
        source = self._rules_from
        if source[0] is not image.configs or source[1] is not config or source[2] is not image.features:
            self._rules.clear()
            self._rules_from = image.configs, config, image.features
        rules_of_group = self._rules.get(group_id)
        if rules_of_group is not None:
            return rules_of_group
        if len(self._rules) >= _MOST_RULES:
            self._rules.clear()
        values = group_configs(image.configs_of(GROUP, group_id), config)
        has_dead_letters = (
            bool(values.text("errors.deadletterqueue.topic.name"))
            and feature_level(image.features, _SHARE_VERSION) >= _FIRST_WITH_DEAD_LETTERS
        )
        rules = DeliveryLimits(
            values.integer("share.record.lock.duration.ms"),
            values.integer("share.delivery.count.limit"),
            values.integer("share.partition.max.record.locks"),
            values.flag("share.renew.acknowledge.enable"),
            has_dead_letters,
        )
        isolation = READ_COMMITTED if values.text("share.isolation.level") == "read_committed" else READ_UNCOMMITTED
        rules_of_group = self._rules[group_id] = GroupRules(
            rules, isolation, values.text("share.auto.offset.reset") or "latest"
        )
        return rules_of_group

    def initial_offset(self, group_id: str, log: "Log") -> int:
        """First offset of a group without a start offset (share.auto.offset.reset). Raises StorageError."""
        reset = self.rules(group_id).reset
        if reset == "earliest":
            return log.start_offset
        if reset == "latest":
            return log.high_watermark
        position = reading.offset_at(log, self._clock.wall_ms() - duration_ms(reset.partition(":")[2]))
        return log.high_watermark if position is None else position[1]

    def write_dead_letters(self, shared: LedSharePartition, dead: list[DeadLetters]) -> None:
        """Write records to the dead-letter topic of their group."""
        for letters in dead:
            self.tasks.background(self._write_dead_letters(shared, letters, shared.turn), "dead letters")

    async def _write_dead_letters(self, shared: LedSharePartition, letters: DeadLetters, turn: int) -> None:
        await self._dead_letters.write(shared.group_id, shared.partition, letters)
        shared.archive(letters, turn)

    # Share partitions.

    def find(self, group_id: str, place: TopicIdPartition) -> LedSharePartition | None:
        """The share partition, if it is open here."""
        return self._shared.get(group_id, _NOTHING).get(place)

    def get_or_load(self, group_id: str, partition: "Partition") -> LedSharePartition:
        """The share partition, which begins to load if it was not loaded or failed."""
        of_group = self._shared.setdefault(group_id, {})
        place = partition.topic_id, partition.index
        shared = of_group.get(place)
        if shared is None:
            shared = of_group[place] = LedSharePartition(self, group_id, partition)
            shared.load()
        elif shared.failure != NONE:
            shared.load()
        return shared

    def _reset(self, reset: StateReset) -> None:
        """Reload a share partition after another request has changed its state."""
        shared = self.find(reset.group_id, (reset.topic_id, reset.partition))
        if shared is None:
            return
        shared.reset()
        if shared.failure != NONE and not shared.watchers:
            of_group = self._shared[reset.group_id]
            del of_group[reset.topic_id, reset.partition]
            if not of_group:
                del self._shared[reset.group_id]

    def apply(self, delta: Delta) -> None:
        """Close the share partitions of deleted topics, and those whose partition has another leader or leader epoch."""
        deleted = {topic.id for topic in delta.deleted}
        moved = {delta.image.topics[name].id for name in delta.moved} | {topic.id for topic in delta.changed}
        if not deleted and not moved:
            return
        for group_id, of_group in tuple(self._shared.items()):
            for place in [place for place in of_group if place[0] in deleted or place[0] in moved]:
                if place[0] in deleted:
                    of_group.pop(place).close()
                elif of_group[place].has_lost_leadership:
                    of_group.pop(place).close(NOT_LEADER_OR_FOLLOWER)
            if not of_group and self._shared.get(group_id) is of_group:
                del self._shared[group_id]

    # Members.

    def refusal(self, group_id: str | None, member_id: str | None) -> int:
        """Return the error of a request in a cluster without share groups, or with an invalid group or member id; else NONE."""
        if feature_level(self._metadata.image.features, _SHARE_VERSION) == 0:
            return UNSUPPORTED_VERSION
        if group_id is None or not member_id or len(member_id) > _LONGEST_MEMBER_ID:
            return INVALID_REQUEST
        return NONE

    def join(self, member: Member, peer: Peer) -> ShareSession | None:
        """Begin a session of a member on a connection, and end it with the connection; None when there are too many."""
        session = self.sessions.begin(member, peer)
        if session is not None and self._on_disconnected not in peer.closed:
            peer.closed.append(self._on_disconnected)
        return session

    def leave(self, member: Member) -> None:
        """Release all records of a member that left, or that its group removed."""
        session = self.sessions.end(member)
        if session is not None:
            self._release(session)

    def acknowledge(
        self, member: Member, acks: Mapping[TopicIdPartition, Sequence[Acks]], *, is_renewal: bool
    ) -> Answer[dict[TopicIdPartition, AcknowledgementResult]]:
        """Apply a member's acknowledgements in several partitions; answered when all of them are written.

        A partition that is named without acknowledgements has an outcome if another one has valid ones, or if it is unknown.
        """
        group_id, member_id = member
        topics = self._metadata.image.topics_by_id
        valid = {place for place, batches in acks.items() if _makes_sense(batches, is_renewal=is_renewal)}
        has_valid = any(acks[place] and place[0] in topics for place in valid)
        answers: dict[TopicIdPartition, Answer[AcknowledgementResult]] = {}
        for place, batches in acks.items():
            shared = self.find(group_id, place)
            if place[0] not in topics:
                answers[place] = AcknowledgementResult(UNKNOWN_TOPIC_ID)
            elif place not in valid:
                answers[place] = AcknowledgementResult(INVALID_REQUEST)
            elif shared is not None and batches:
                self._count(batches)
                answers[place] = shared.acknowledge(
                    member_id,
                    [
                        Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                        for batch in batches
                    ],
                )
            elif (
                shared is None
                and isinstance(code := self._replicas.leader_by_id(*place), int)
                and code != NOT_LEADER_OR_FOLLOWER
            ):
                answers[place] = AcknowledgementResult(code)
            elif batches:
                unknown = error(UNKNOWN_TOPIC_OR_PARTITION)
                answers[place] = AcknowledgementResult(unknown.code, unknown.message)
            elif has_valid:
                answers[place] = AcknowledgementResult()
        return gather(list(answers.values()), lambda outcomes: dict(zip(answers, outcomes, strict=True)))

    def _count(self, batches: Sequence[Acks]) -> None:
        for batch in batches:
            types = batch.acknowledge_types
            if len(types) == 1:
                self.acknowledged[types[0]] += batch.last_offset - batch.first_offset + 1
            else:
                self.acknowledged.update(types)

    def all(self) -> "list[LedSharePartition]":
        """Return the share partitions that are open here."""
        return [shared for of_group in self._shared.values() for shared in of_group.values()]

    def _on_disconnected(self, peer: Peer) -> None:
        """End the sessions of a closed connection."""
        for session in self.sessions.end_all_of(peer):
            self._release(session)

    def _release(self, session: ShareSession) -> None:
        group_id, member_id = session.member
        for shared in tuple(self._shared.get(group_id, _NOTHING).values()):
            shared.release(member_id)

    # Time.

    def ring_at(self, shared: LedSharePartition, deadline: int) -> None:
        """Schedule a check of a share partition's locks at `deadline`."""
        if deadline >= shared.rings_at:
            return
        shared.rings_at = deadline
        self._numbers += 1
        heapq.heappush(self._alarms, (deadline, self._numbers, shared))
        self._set_alarm()

    def _set_alarm(self) -> None:
        while self._alarms and self._alarms[0][2].rings_at != self._alarms[0][0]:
            heapq.heappop(self._alarms)
        if self._alarms:
            self._alarm.set(self._alarms[0][0])

    def _run_due(self) -> None:
        now = self.now()
        try:
            while self._alarms and self._alarms[0][0] <= now:
                deadline, _, shared = heapq.heappop(self._alarms)
                if shared.rings_at == deadline:
                    shared.rings_at = NEVER
                    shared.expire(now)
        finally:
            self._set_alarm()

    def close(self) -> None:
        """Cancel the alarm."""
        self._alarm.close()
