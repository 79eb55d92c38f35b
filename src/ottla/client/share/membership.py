"""Member of a share group: sends heartbeats, and gets its assigned partitions from the coordinator.

The coordinator sets the heartbeat interval. A member without partitions sends its next heartbeats sooner: when Apache Kafka
answers the first member of a group, it has no state of the partitions yet, and asks for the second heartbeat 5 s later. The
member chooses its own id; if the coordinator rejects its epoch, it rejoins with the same id. An error that is not retriable
ends the membership, and is stored in `error`.
"""

import base64
import contextlib
from typing import Final

from ottla.client.coordinator import GROUP, CoordinatorClient
from ottla.client.core import Core
from ottla.client.errors import KafkaError, Permission
from ottla.client.share.sensors import ShareSensors
from ottla.protocol import errors as table
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.tasks.scheduler import Cancelled, Task
from ottla.tasks.signal import Signal

_JOIN: Final = 0
_LEAVE: Final = -1
_EARLY_MS: Final = 500
_EARLY_HEARTBEATS: Final = 10
"""Interval and number of the heartbeats that a member without partitions sends before the coordinator's interval applies."""
_REJOIN_CODES: Final = frozenset({table.UNKNOWN_MEMBER_ID, table.FENCED_MEMBER_EPOCH})

TopicIdPartition = tuple[bytes, int]


class ShareMembership:
    """Membership in one share group, with a new member id or the given one.

    assigned  assigned partitions, as (topic id, number)
    changed   signals a change of `assigned` or `error`
    error     error that ended the membership, None while it lasts
    """

    def __init__(self, core: Core, sensors: ShareSensors, member_id: str | None = None) -> None:
        self.group_id: str = core.config["group.id"]
        self._coordinator = CoordinatorClient(core.metadata, GROUP, self.group_id)
        self.member_id = member_id or base64.urlsafe_b64encode(core.random.bytes16()).decode().rstrip("=")
        self.assigned: frozenset[TopicIdPartition] = frozenset()
        self.epoch = _JOIN
        self.changed = Signal(core.scheduler)
        self.error: KafkaError | None = None
        self._core = core
        self._sensors = sensors
        self._topics: list[str] = []
        self._task: Task[None] | None = None
        self._now = Signal(core.scheduler)
        self._subscribed = False

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe to these topics, in place of the previous ones."""
        self._topics = sorted(set(topics))
        self._subscribed = True
        self.error = None
        if self._task is None:
            self._task = self._core.scheduler.background(self._run_membership(), "heartbeats of a share group")
        else:
            self._now.happen()

    async def leave(self) -> None:
        """Leave the group; an error of the coordinator is ignored."""
        if self._task is None:
            return
        self._task.cancel()
        self._task = None
        self.assigned = frozenset()
        if self.epoch != _JOIN:
            self.epoch = _LEAVE
            with contextlib.suppress(KafkaError):  # its session times out instead
                await self._heartbeat()
        self.epoch = _JOIN

    async def _run_membership(self) -> None:
        failures = 0
        early = _EARLY_HEARTBEATS
        while True:
            again = self._now.wait()
            try:
                answer = await self._heartbeat()
                failures = 0
                self._apply(answer)
                interval_ms = answer.heartbeat_interval_ms
                if self.assigned:
                    early = _EARLY_HEARTBEATS
                elif early:
                    early -= 1
                    interval_ms = min(interval_ms, _EARLY_MS)
                await self._core.scheduler.within(again, interval_ms)
            except Cancelled:
                raise
            except KafkaError as error:
                if error.code in _REJOIN_CODES:
                    self.epoch = _JOIN
                    self._assign(frozenset())
                elif not error.retriable:
                    self.error = error
                    self._task = None
                    self.changed.happen()
                    return
                failures += 1
                await self._core.scheduler.sleep(self._core.metadata.backoff_ms(failures))

    async def _heartbeat(self) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch)
        rack: str = self._core.config["client.rack"]
        subscribes = self._subscribed or self.epoch == _JOIN
        if subscribes and self.epoch != _LEAVE:
            request.subscribed_topic_names = self._topics
            request.rack_id = rack or None
        sent_ms = self._core.clock.now_ms()
        self._sensors.heartbeat_sent(sent_ms)
        try:
            answer = await self._coordinator.request(request)
            self._sensors.heartbeat_answered(sent_ms, self._core.clock.now_ms())
            permission = Permission("Read", "topic", tuple(self._topics))
            self._coordinator.check(answer.error_code, f"share group {self.group_id}", answer.error_message, permission)
        except KafkaError:
            self._subscribed = True  # the lost response may contain an assignment: send all fields to get it again
            raise
        if subscribes:
            self._subscribed = request.subscribed_topic_names != self._topics
        return answer

    def _apply(self, answer: ShareGroupHeartbeatResponse) -> None:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assign(
                frozenset(
                    (topic.topic_id, index)
                    for topic in answer.assignment.topic_partitions
                    for index in topic.partitions
                )
            )

    def _assign(self, partitions: frozenset[TopicIdPartition]) -> None:
        if partitions != self.assigned:
            self.assigned = partitions
            self._sensors.rebalances.record(1, self._core.clock.now_ms())
            self.changed.happen()
