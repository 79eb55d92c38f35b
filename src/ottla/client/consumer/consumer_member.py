"""Member of a consumer group of the new protocol (KIP-848): the coordinator assigns, the member reconciles.

Heartbeats contain the partitions that the member owns; the responses contain its target assignment. The member revokes
partitions outside of the target, reports that, and gets new partitions when their previous owners have revoked them.

    target {1,2}, owned {2,3} --> revoke 3 --> heartbeat: owned {2} --> assign 1 --> heartbeat: owned {1,2}

If the coordinator rejects the epoch, the member loses all partitions at once and rejoins.
"""

import base64
import contextlib
from typing import Final

from ottla.client.consumer.poll_watch import PollWatch
from ottla.client.consumer.rebalance import AssignmentChange, MemberConsumer, PollTimeout
from ottla.client.coordinator import GROUP, CoordinatorClient
from ottla.client.core import Core
from ottla.client.errors import KafkaError, Permission, UnsupportedVersion
from ottla.client.groups import GroupMetadata
from ottla.client.topics import TopicPartition
from ottla.protocol import errors as table
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.tasks.scheduler import Cancelled, Task
from ottla.tasks.signal import Signal

_JOIN: Final = 0
_LEAVE: Final = -1
_LEAVE_STATIC: Final = -2
_DEFAULT_INTERVAL_MS: Final = 5000
_REJOIN_CODES: Final = frozenset({table.UNKNOWN_MEMBER_ID, table.FENCED_MEMBER_EPOCH})


class ConsumerMembership:
    """Membership in one group of the new protocol."""

    def __init__(self, core: Core, consumer: MemberConsumer) -> None:
        config = core.config
        self.error: BaseException | None = None
        self._core = core
        self._consumer = consumer
        self._group_id: str = config["group.id"]
        self._coordinator = CoordinatorClient(core.metadata, GROUP, self._group_id)
        self._instance_id: str | None = config["group.instance.id"]
        self._member_id = base64.urlsafe_b64encode(core.random.bytes16()).decode().rstrip("=")
        self._epoch = _JOIN
        self._topics: list[str] = []
        self._pattern: str | None = None
        self._owned: set[TopicPartition] = set()
        self._target: set[tuple[bytes, int]] | None = None
        self._ids: dict[str, bytes] = {}
        self._full = True
        self._owned_sent = False
        self._rebalancing_since_ms: int | None = None
        self._task: Task[None] | None = None
        self._now = Signal(core.scheduler)
        self._interval_ms = _DEFAULT_INTERVAL_MS
        self._poll_watch = PollWatch(core, consumer)

    @property
    def metadata(self) -> GroupMetadata:
        """Return the ids and epoch of the member."""
        return GroupMetadata(self._group_id, self._epoch or -1, self._member_id, self._instance_id)

    def subscribe(self, topics: list[str], pattern: str | None) -> None:
        """Subscribe to these topics, or to a pattern matched by the broker (RE2), in place of the previous subscription."""
        self._topics, self._pattern = sorted(set(topics)), pattern
        self._full = True
        self.error = None
        self._poll_watch.restart()
        if self._task is None:
            self._task = self._core.scheduler.background(self._run_membership(), "heartbeats")
        self._now.happen()

    async def leave(self) -> None:
        """Leave the group; a static member leaves temporarily (epoch -2)."""
        if self._task is None:
            return
        self._task.cancel()
        self._task = None
        if self._epoch != _JOIN:
            self._epoch = _LEAVE_STATIC if self._instance_id is not None else _LEAVE
            with contextlib.suppress(KafkaError):  # its session times out instead
                await self._heartbeat()
        self._epoch = _JOIN
        self._owned.clear()
        self._target = None

    # -- heartbeats --

    async def _run_membership(self) -> None:
        failures = 0
        while True:
            again = self._now.wait()
            try:
                self._poll_watch.check()
                answer = await self._heartbeat()
                failures = 0
                self._apply(answer)
                if not await self._reconcile():
                    await self._poll_watch.wait(again, self._interval_ms)
            except Cancelled:
                raise
            except PollTimeout:
                await self._stop_until_polled()
            except KafkaError as error:
                if error.code in _REJOIN_CODES:
                    await self._drop_all()
                elif not error.retriable:
                    await self._drop_all()
                    self.error = error
                    self._task = None
                    self._consumer.on_failed()
                    return
                failures += 1
                await self._core.scheduler.sleep(self._core.metadata.backoff_ms(failures))

    async def _notify_consumer(
        self, change: AssignmentChange, partitions: list[TopicPartition], owned: list[TopicPartition]
    ) -> None:
        """Apply a change of partitions at the next poll, and send heartbeats until then. Raises PollTimeout."""
        limit: int = self._core.config["max.poll.interval.ms"]
        notification = self._core.scheduler.start(
            self._consumer.apply_change(change, partitions, owned), "reconciliation"
        )
        try:
            while not await self._poll_watch.wait(notification, min(self._interval_ms, limit)):
                try:
                    self._apply(await self._heartbeat())
                except KafkaError as error:
                    if not error.retriable:
                        raise
            notification.result()
        finally:
            notification.cancel()

    async def _stop_until_polled(self) -> None:
        """Leave the group after max.poll.interval.ms without a poll, and rejoin with the next poll."""
        self._epoch = _LEAVE
        with contextlib.suppress(KafkaError):
            await self._heartbeat()
        await self._drop_all()
        await self._poll_watch.until_polled()

    async def _drop_all(self) -> None:
        """Drop all partitions as lost."""
        self._epoch = _JOIN
        self._target = None
        self._full = True
        lost = sorted(self._owned)
        self._owned.clear()
        if lost:
            await self._consumer.apply_change(AssignmentChange.LOST, lost, [])

    async def _heartbeat(self) -> ConsumerGroupHeartbeatResponse:
        joins = self._epoch == _JOIN
        full = self._full or joins
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self._instance_id,
        )
        if full and self._epoch >= _JOIN:
            config = self._core.config
            request.subscribed_topic_names = self._topics
            request.subscribed_topic_regex = "" if self._pattern is None and not joins else self._pattern
            request.rebalance_timeout_ms = config["max.poll.interval.ms"]
            request.server_assignor = config["group.remote.assignor"]
            request.rack_id = config["client.rack"] or None
        if joins:
            request.topic_partitions = []
        elif not self._owned_sent and self._epoch > _JOIN:
            request.topic_partitions = self._owned_partitions()
        try:
            answer = await self._coordinator.request(request)
            permission = Permission("Read", "topic", tuple(self._topics))
            about = f"consumer group {self._group_id}"
            self._coordinator.check(answer.error_code, about, answer.error_message, permission)
        except KafkaError as error:
            if isinstance(
                error, UnsupportedVersion
            ):  # Kafka 3.7 to 3.9 serves an older version where its configs allow it
                raise UnsupportedVersion(
                    f"consumer group {self._group_id}: group.protocol=consumer needs Kafka 4.0 or newer, "
                    "with consumer in its group.coordinator.rebalance.protocols",
                    table.UNSUPPORTED_VERSION,
                ) from error
            # The coordinator may have assigned partitions although the request failed (lost response, write not replicated in
            # time), and it sends an assignment once. After a request with all fields it sends the assignment again.
            self._full, self._owned_sent = True, False
            raise
        if full and (request.subscribed_topic_names, request.subscribed_topic_regex or None) == (
            self._topics,
            self._pattern,
        ):
            self._full = False
        if request.topic_partitions is not None:
            self._owned_sent = True
        return answer

    def _owned_partitions(self) -> list[TopicPartitions]:
        topics: dict[bytes, TopicPartitions] = {}
        for name, index in sorted(self._owned):
            topic_id = self._ids[name]
            topics.setdefault(topic_id, TopicPartitions(topic_id=topic_id)).partitions.append(index)
        return list(topics.values())

    def _apply(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        self._epoch = answer.member_epoch
        self._interval_ms = answer.heartbeat_interval_ms or self._interval_ms
        if answer.assignment is not None:
            self._target = {
                (topic.topic_id, index) for topic in answer.assignment.topic_partitions for index in topic.partitions
            }
            # The coordinator waits for the owned partitions of the member even if there is nothing to revoke or to add, as with
            # a topic that was deleted before the member knew its name, or recreated under the same name.
            self._owned_sent = False

    # -- reconciliation --

    async def _reconcile(self) -> bool:
        """Make one step towards the target assignment. Return True if the next heartbeat must be sent at once."""
        if self._target is None:
            return False
        target = await self._resolve_names(self._target)
        revoked, added = sorted(self._owned - target), sorted(target - self._owned)
        self._measure(is_rebalancing=bool(revoked or added))
        if revoked:
            await self._notify_consumer(AssignmentChange.REVOKED, revoked, sorted(self._owned - set(revoked)))
            self._owned -= set(revoked)
            self._owned_sent = False
            return True
        if added:
            await self._notify_consumer(AssignmentChange.ASSIGNED, added, sorted(self._owned | set(added)))
            self._owned |= set(added)
            self._owned_sent = False
            return True
        return False

    def _measure(self, *, is_rebalancing: bool) -> None:
        """Note the begin of a rebalance, and report its end."""
        now_ms = self._core.clock.now_ms()
        if is_rebalancing and self._rebalancing_since_ms is None:
            self._rebalancing_since_ms = now_ms
        elif not is_rebalancing and self._rebalancing_since_ms is not None:
            self._consumer.on_rebalanced(now_ms - self._rebalancing_since_ms)
            self._rebalancing_since_ms = None

    async def _resolve_names(self, target: set[tuple[bytes, int]]) -> set[TopicPartition]:
        """Return the target assignment by topic names; topics without a name in the metadata yet are left out."""
        metadata = self._core.metadata
        if any(metadata.name_of(topic_id) is None for topic_id, _ in target):
            await metadata.fetch(self._topics if self._pattern is None else None)
        named = set()
        for topic_id, index in target:
            name = metadata.name_of(topic_id)
            if name is not None:
                self._ids[name] = topic_id
                named.add(TopicPartition(name, index))
        return named
