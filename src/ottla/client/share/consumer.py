"""Core of a share consumer (KIP-932): records are distributed among the members and acknowledged one by one.

Strategy. `poll` sends a fetch to every node that leads assigned partitions, returns the records of the first response, and
keeps the rest for the next call. In implicit mode a poll accepts all records of the previous one; in explicit mode the
application acknowledges every record before it polls again. Acknowledgements are sent with the next fetch to the same node,
or in a request of their own by `commit`. Their results go to the caller of `commit`, and to the callback.

The acquisition lock of a record is running while the application processes it, so records are not prefetched.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ottla.client.core import Core
from ottla.client.errors import (
    IllegalState,
    InvalidClientConfig,
    KafkaError,
    NotAuthorized,
    RequestTimedOut,
    UnknownTopic,
)
from ottla.client.metrics import MetricValues
from ottla.client.share.delivery import AcknowledgeType, AcquiredBatch, DeliveredBatch, Home, Run
from ottla.client.share.membership import ShareMembership
from ottla.client.share.sensors import ShareSensors
from ottla.client.share.session import FetchedRecords, FetchLimits, NodeShareSession, number_of_records
from ottla.client.topics import TopicPartition
from ottla.records.record import Record
from ottla.tasks.signal import Signal

CommitCallback = Callable[[Mapping[TopicPartition, set[int]], KafkaError | None], None]
CommitResults = dict[TopicPartition, KafkaError | None]
_SHORTEST_WAIT_MS: Final = 1


class ShareConsumerCore:
    """Core of one share consumer; all methods except `acknowledge` run on the core's thread.

    member_id  id of a failed member to resume; a new id by default
    callback   called with {partition: offsets} and an error or None, for the acknowledgements of each response
    """

    def __init__(self, core: Core, member_id: str | None = None) -> None:
        if not core.config["group.id"]:
            raise InvalidClientConfig("group.id is missing: a share consumer is a member of a share group")
        if core.config["interceptor.classes"]:
            raise InvalidClientConfig("interceptor.classes: a share consumer has none, as in Apache Kafka")
        self.core = core
        core.metadata.operation = "Read"
        self.callback: CommitCallback | None = None
        self._explicit: bool = core.config["share.acknowledgement.mode"] == "explicit"
        self._sensors = ShareSensors()
        self._member = ShareMembership(core, self._sensors, member_id)
        self._topics: frozenset[str] = frozenset()
        self._sessions: dict[int, NodeShareSession] = {}
        self._acquired: deque[AcquiredBatch] = deque()
        self._delivered: list[DeliveredBatch] = []
        self._failure: KafkaError | None = None
        self._arrived = Signal(self.core.scheduler)
        self._results: CommitResults | None = None
        self._awaits_leaders = False
        self._rejoins = False
        """True if the next poll restarts the membership."""
        self._closed = False
        core.observe(self.metrics, self._member_id)

    # -- subscription --

    @property
    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._topics

    @property
    def member_id(self) -> str:
        """Return the member id of this consumer."""
        return self._member.member_id

    def _member_id(self) -> str:
        return self._member.member_id

    @property
    def lock_ms(self) -> int | None:
        """Return the acquisition lock timeout of the records of a poll, in ms; None before a broker returned one."""
        return max((session.lock_ms for session in self._sessions.values()), default=0) or None

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics, in place of the previous ones."""
        self._check_open()
        self._topics = frozenset(topics)
        self._member.subscribe(sorted(self._topics))

    async def unsubscribe(self) -> None:
        """Leave the group; records without an acknowledgement are released."""
        self._check_open()
        self._topics = frozenset()
        await self._leave()

    # -- records --

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return up to max.poll.records records; an empty list after the timeout. Raises KafkaError."""
        self._check_open()
        if not self._topics:
            raise IllegalState("a share consumer polls after it has subscribed to topics")
        self._settle_last_poll()
        if self._rejoins:
            self._rejoins = False
            self._member.subscribe(sorted(self._topics))
        clock = self.core.clock
        self._sensors.poll_begun(clock.now_ms())
        try:
            return await self._records_until(clock.now_ms() + timeout_ms)
        finally:
            self._sensors.poll_ended(clock.now_ms())

    async def _records_until(self, deadline: int) -> list[Record]:
        clock = self.core.clock
        while True:
            self._raise_pending_error()
            records = self._next_records()
            if records:
                return records
            left = deadline - clock.now_ms()
            arrived, changed = self._arrived.wait(), self._member.changed.wait()
            if left <= 0:
                return []
            self.core.metadata.watch(sorted(self._topics), self._arrived.happen)
            await self._fetch(left)
            left = deadline - clock.now_ms()
            if not self._acquired and self._failure is None and left > 0:
                await self.core.scheduler.within(arrived, left, changed)

    def _settle_last_poll(self) -> None:
        """Implicit mode: accept the records of the last poll. Explicit mode: raise unless all were acknowledged."""
        if not self._explicit:
            for delivered in self._delivered:
                delivered.acknowledge_all(AcknowledgeType.ACCEPT)
        elif not all(delivered.settled for delivered in self._delivered):
            raise IllegalState("explicit mode: acknowledge every record of the last poll before the next one")
        self._queue_acknowledgements()

    def _queue_acknowledgements(self) -> None:
        """Queue the acknowledgements in their sessions, and drop batches that are acknowledged completely."""
        for delivered in self._delivered:
            acknowledgements = delivered.collect()
            if acknowledgements:
                self._session(delivered.home.node).queue(delivered.home, acknowledgements)
        self._delivered = [delivered for delivered in self._delivered if not delivered.settled]

    def _raise_pending_error(self) -> None:
        failure, self._failure = self._failure, None
        if failure is None:
            failure = self._member.error
            # Permissions may be granted before the next poll, which joins again.
            self._rejoins = isinstance(failure, NotAuthorized)
        if failure is None:
            failure = self.core.metadata.denial(sorted(self._topics))
        if failure is not None:
            raise failure

    def _next_records(self) -> list[Record]:
        """Return the acquired records, up to max.poll.records."""
        most: int = self.core.config["max.poll.records"]
        records: list[Record] = []
        while self._acquired and len(records) < most:
            first = self._acquired[0]
            taken, delivered = first.take(most - len(records))
            self._delivered.append(delivered)
            records += taken
            if not len(first):
                self._acquired.popleft()
        return records

    def acknowledge(self, record: Record, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Set the acknowledgement of a record of the last poll. Any thread, but not while `poll` or `commit` runs.

        Raises IllegalState.
        """
        if not self._explicit:
            raise IllegalState("implicit mode acknowledges by itself: share.acknowledgement.mode=explicit is for this")
        if not self._set(record, kind):
            raise IllegalState(
                f"the record {record.topic}-{record.partition}@{record.offset} waits for no acknowledgement"
            )

    def release(self, records: Iterable[Record]) -> None:
        """Release records of the last poll that cannot be read, in both modes, as Kafka's share consumer does."""
        for record in records:
            self._set(record, AcknowledgeType.RELEASE)

    def _set(self, record: Record, kind: AcknowledgeType) -> bool:
        """Set the acknowledgement of a record. Return False if it waits for none."""
        where = (record.topic, record.partition)
        return any(
            delivered.home.partition == where and delivered.acknowledge(record.offset, kind)
            for delivered in self._delivered
        )

    # -- fetching --

    async def _partitions_by_node(self, left_ms: int) -> dict[int, dict[tuple[bytes, int], TopicPartition]]:
        """Group the assigned partitions by leader, as far as leaders are known within `left_ms`."""
        metadata = self.core.metadata
        deadline = self.core.clock.now_ms() + left_ms
        for name in sorted(self._topics):
            if metadata.known(name) is None:
                try:
                    await metadata.topic(name, timeout_ms=max(deadline - self.core.clock.now_ms(), 0))
                except KafkaError as error:
                    if not error.retriable and not isinstance(error, UnknownTopic):
                        raise
                    # The topic may be created later, or the brokers may be reachable again.
        by_node: dict[int, dict[tuple[bytes, int], TopicPartition]] = {}
        leaderless: set[str] = set()
        for topic_id, index in sorted(self._member.assigned):
            name_of = metadata.name_of(topic_id)
            info = metadata.known(name_of) if name_of is not None else None
            if name_of is None or info is None or info.id != topic_id:
                continue
            node = info.leaders.get(index, -1)
            if node >= 0:
                by_node.setdefault(node, {})[topic_id, index] = TopicPartition(name_of, index)
            else:
                leaderless.add(name_of)
        if leaderless and not self._awaits_leaders:
            self._awaits_leaders = True
            self.core.scheduler.background(self._refresh(sorted(leaderless)), "leaders of share partitions")
        return by_node

    async def _refresh(self, topics: list[str]) -> None:
        """Request the metadata of topics again after the backoff: no response of a broker reports that a partition without
        a leader has one.
        """
        await self.core.scheduler.sleep(self.core.metadata.backoff_ms(1))
        self._awaits_leaders = False
        for topic in topics:
            self.core.metadata.forget(topic)
        self._arrived.happen()

    async def _fetch(self, left_ms: int) -> None:
        """Send a fetch to every node without a request in flight."""
        if not self._member.assigned:
            return
        by_node = await self._partitions_by_node(left_ms)
        config = self.core.config
        limits = FetchLimits(
            config["max.poll.records"], max(min(config["fetch.max.wait.ms"], left_ms), _SHORTEST_WAIT_MS)
        )
        for node, partitions in by_node.items():
            session = self._session(node)
            if not session.busy:
                session.busy = True
                self.core.scheduler.background(self._fetch_from(session, partitions, limits), "share fetch")
        for node, session in self._sessions.items():
            if node not in by_node:
                self._acknowledge_to(session)

    async def _fetch_from(
        self, session: NodeShareSession, partitions: dict[tuple[bytes, int], TopicPartition], limits: FetchLimits
    ) -> None:
        try:
            fetched: FetchedRecords = await session.fetch(partitions, limits)
        except KafkaError as error:
            if error.retriable:
                self.core.metadata.forget()
                await self.core.scheduler.sleep(self.core.metadata.backoff_ms(1))
            else:
                self._failure = error
        else:
            self._acquired.extend(fetched.acquired)
            self._failure = fetched.failure or self._failure
        self._arrived.happen()

    def _acknowledge_to(self, session: NodeShareSession) -> None:
        """Send the acknowledgements of a session, unless a request is in flight: its waiter calls again."""
        if session.has_acknowledgements and not session.busy:
            session.busy = True
            self.core.scheduler.background(self._send_acknowledgements(session), "share acknowledge")

    async def _send_acknowledgements(self, session: NodeShareSession) -> None:
        with contextlib.suppress(KafkaError):  # reported to the caller by `_on_acknowledged`
            await session.acknowledge()
        self._arrived.happen()

    def _session(self, node: int) -> NodeShareSession:
        session = self._sessions.get(node)
        if session is None:
            session = NodeShareSession(
                self.core, self._member.group_id, self._member.member_id, node, self._on_acknowledged, self._sensors
            )
            self._sessions[node] = session
        return session

    def _on_acknowledged(self, home: Home, acknowledgements: list[Run], error: KafkaError | None) -> None:
        """Report the result of acknowledgements to `commit` and the callback."""
        if error is not None:
            self._sensors.refused.record(number_of_records(acknowledgements), self.core.clock.now_ms())
        if self._results is not None and (error is not None or home.partition not in self._results):
            self._results[home.partition] = error
        if self.callback is not None:
            offsets = {offset for first, last, kind in acknowledgements if kind for offset in range(first, last + 1)}
            if offsets:
                self.callback({home.partition: offsets}, error)

    # -- committing --

    async def commit(self, timeout_ms: int) -> CommitResults:
        """Send the acknowledgements and wait; return partition -> None or its error. Raises RequestTimedOut."""
        self._check_open()
        if not self._explicit:
            for delivered in self._delivered:
                delivered.acknowledge_all(AcknowledgeType.ACCEPT)
        results: CommitResults = {}
        self._results = results
        try:
            self._queue_acknowledgements()
            deadline = self.core.clock.now_ms() + timeout_ms
            while any(session.has_acknowledgements or session.busy for session in self._sessions.values()):
                arrived = self._arrived.wait()
                for session in self._sessions.values():
                    self._acknowledge_to(session)
                left = deadline - self.core.clock.now_ms()
                if left <= 0:
                    raise RequestTimedOut(f"not every acknowledgement was answered within {timeout_ms} ms")
                await self.core.scheduler.within(arrived, left)
            return results
        finally:
            self._results = None

    def commit_soon(self) -> None:
        """Send the acknowledgements; the callback is called with the outcome."""
        self._check_open()
        if not self._explicit:
            for delivered in self._delivered:
                delivered.acknowledge_all(AcknowledgeType.ACCEPT)
        self._queue_acknowledgements()
        for session in self._sessions.values():
            self._acknowledge_to(session)

    def metrics(self) -> MetricValues:
        """Return the metrics of the share consumer."""
        client_id = str(self.core.config["client.id"])
        values = self._sensors.values(client_id, self.core.clock.now_ms())
        values.put("consumer-metrics", (("client-id", client_id),), self.core.connection_metrics())
        return values

    # -- close --

    async def close(self, timeout_ms: int) -> None:
        """Send the acknowledgements (implicit mode: accept), release the rest, leave the group."""
        if self._closed:
            return
        try:
            pushing = self.core.push_last(timeout_ms)
            leaving = self.core.scheduler.start(self._leave(), "leave")
            if not await self.core.scheduler.within(leaving, timeout_ms):
                leaving.cancel()
            await pushing
        finally:
            self._closed = True
            self.core.close()

    async def _leave(self) -> None:
        if not self._explicit:
            for delivered in self._delivered:
                delivered.acknowledge_all(AcknowledgeType.ACCEPT)
        self._queue_acknowledgements()
        self._delivered.clear()
        self._acquired.clear()
        for session in self._sessions.values():
            while session.busy:
                await self._arrived.wait()
            with contextlib.suppress(KafkaError):  # the session ends with its connection
                await session.end()
        self._sessions.clear()
        await self._member.leave()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalState("the share consumer is closed")
