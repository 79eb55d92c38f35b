"""Membership of this broker in a cluster: registration, lease, and sign of life.

A broker joins in this order:

    previous   the sign of life of this broker's own earlier process is removed; that of another process is waited for
    register   /brokers/<id> is written with the incarnation of this process: its revision is the broker epoch
    epochs     partitions that the earlier incarnation led get a new leader epoch, and after an unclean stop this broker leaves
               the ISRs: an offset of an old epoch must never be assigned again. Where the log is gone with its directory, it
               also leaves a partition whose newest records no other broker has: an empty log must not replace older ones
    live       /live/<id> is written under a lease, which is renewed from then on

It serves no request before its own sign of life is in its image. If the lease ends while the process lives, because the store
could not be reached or another broker has revoked it, the broker writes its sign of life again: the registration stays valid.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ottla.broker.cluster.controlled_shutdown import AppliedRevisions, ControlledShutdown, LivenessWriter
from ottla.broker.cluster.directories import Incarnation, OwnDirectories
from ottla.broker.starting import CannotStart
from ottla.metadata import changes
from ottla.metadata.changes.elections import take_replacement, take_restart
from ottla.metadata.image import NO_LEADER, BrokerImage, Delta, Liveness, PartitionImage, TopicImage
from ottla.metadata.metadata import Metadata
from ottla.metadata.store import Change, ChangeOutcome, LeaseOutcome, MetadataStore, keys
from ottla.tasks.deferred import awaitable
from ottla.tasks.scheduler import Scheduler, Task

_logger = logging.getLogger("ottla.cluster")
_RETRY_MS: Final = 200
_WARN_EVERY_MS: Final = 5000
_NAMES_A_LINE: Final = 10
_PARTITIONS_A_CHANGE: Final = 50
"""Each is compared with its topic, and etcd takes 128 comparisons."""
_DUPLICATE: Final = (
    "Another broker is registered with that broker id. If the broker was recently restarted this should self-resolve once the "
    "heartbeat manager expires the broker's session. This is node {}: give another node.id, or stop the other broker"
)


class CannotJoin(CannotStart):
    """Failed start of a broker in a cluster: the reason and its remedy, in one line."""


class Membership:
    """Membership of this broker.

    registration  what is written to /brokers/<id>; epoch and incarnation are set here
    directories   the log directories of this broker at its start
    failed        called with the reason, in one line, when another process has taken the node id
    """

    def __init__(
        self,
        registration: BrokerImage,
        *,
        incarnation: Incarnation,
        directories: OwnDirectories,
        store: MetadataStore,
        metadata: Metadata,
        tasks: Scheduler,
        session_timeout_ms: int,
        failed: Callable[[str], None],
    ) -> None:
        self._node_id = registration.node_id
        self._registration = registration._replace(incarnation=incarnation.id)
        self._incarnation = incarnation
        self._directories = directories
        self._store = store
        self._metadata = metadata
        self._clock = tasks.clock
        self._scheduler = tasks
        self._session_timeout_ms = session_timeout_ms
        self._failed = failed
        self._renewing: Task[None] | None = None
        self._is_joined = False
        self._is_closed = False
        self._is_restoring = False
        self._is_leaving = False
        self._is_resigning = False
        self._quiet_until_ms = 0
        """Time of the next warning about a step that is retried, in ms."""
        before = metadata.image.registered.get(self._node_id)
        self._previous_epoch = 0 if before is None else before.epoch
        """Broker epoch of the earlier incarnation."""
        self.epoch = 0
        """Broker epoch, 0 before the registration."""
        self.lease = 0
        """The current lease, 0 without one."""
        self._writer = LivenessWriter(self._node_id, metadata, self._scheduler, self._own_sign)
        self.applied_revisions = AppliedRevisions(self._node_id, metadata, self._scheduler, self._writer)
        self.shutdown: ControlledShutdown | None = None
        """The controlled shutdown, from its begin on."""

    def _own_sign(self) -> Liveness | None:
        """Return the sign of life of this process under its current lease; None without one, and after the end."""
        sign = self._metadata.image.live.get(self._node_id)
        is_own = sign is not None and (sign.incarnation, sign.lease) == (self._incarnation.id, self.lease)
        return sign if is_own and not self._is_closed else None

    @property
    def is_live(self) -> bool:
        """True while this broker has a sign of life in the image."""
        sign = self._metadata.image.live.get(self._node_id)
        return sign is not None and sign.incarnation == self._incarnation.id

    async def join(self, load: Callable[[], None]) -> None:
        """Join the cluster: this broker is live at the end. Raises CannotJoin, with the reason in one line.

        load  opens the logs; called after the registration, before the sign of life
        """
        await self._register()
        await self._begin_epochs()
        load()
        await self._go_live()
        self._is_joined = True

    async def _register(self) -> None:
        key, live_key = keys.broker_key(self._node_id), keys.live_key(self._node_id)
        while True:
            await self._end_previous()
            value = self._registration.encoded()
            revision = self._metadata.image.revision_of(key)
            outcome = await self._metadata.submit(Change({key: revision}, {live_key: 0}, put={key: value}))
            if outcome.error is not None:
                self._warn("register", outcome.error)
                await self._scheduler.sleep(_RETRY_MS)
            registered = self._metadata.image.registered.get(self._node_id)
            if registered is not None and registered.incarnation == self._incarnation.id:
                self.epoch = registered.epoch
                return

    async def _end_previous(self) -> None:
        """Wait until no earlier process has a sign of life. Raises CannotJoin if another process keeps its own."""
        deadline_ms = self._clock.now_ms() + 2 * self._session_timeout_ms
        while (sign := self._metadata.image.live.get(self._node_id)) is not None:
            # The lock of the data directory proves that the processes which used it before have ended. The last of them may
            # have ended before it registered, and have left the sign of one before it.
            if sign.incarnation in self._incarnation.earlier:
                await awaitable(self._store.revoke(sign.lease), self._scheduler)
            if self._clock.now_ms() >= deadline_ms:
                raise CannotJoin(_DUPLICATE.format(self._node_id))
            await self._scheduler.sleep(_RETRY_MS // 4)

    async def _begin_epochs(self) -> None:
        """Begin new leader epochs where the earlier incarnation led; after an unclean stop leave the ISRs and ELRs."""
        was_clean = self._previous_epoch != 0 and self._incarnation.broker_epoch == self._previous_epoch
        left = [
            (topic.id, index)
            for topic in self._metadata.image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if partition.leader == self._node_id
            or (not was_clean and self._node_id in (*partition.isr, *partition.elr, partition.last_known_leader))
            or (self._node_id in partition.replicas and self._directories.has_lost(topic, index, self._node_id))
        ]
        if left:
            _logger.info("beginning new leader epochs of %d partitions", len(left))
            self._report_lost(left)
        while left:
            chunk = left[:_PARTITIONS_A_CHANGE]
            planned = self._plan_restart(chunk, was_clean=was_clean)
            if not planned:
                del left[: len(chunk)]
                continue
            outcome = await self._metadata.submit(self._change_of(planned))
            if outcome.revision:
                del left[: len(chunk)]
            elif not outcome.conflicts:
                self._warn("begin new leader epochs", outcome.error)
                await self._scheduler.sleep(_RETRY_MS)

    def _report_lost(self, places: Sequence[tuple[bytes, int]]) -> None:
        """Log the partitions of which this broker has lost its log."""
        topics = self._metadata.image.topics_by_id
        lost = [
            (topics[topic_id], index)
            for topic_id, index in places
            if self._directories.has_lost(topics[topic_id], index, self._node_id)
        ]
        if not lost:
            return
        names = ", ".join(f"{topic.name}-{index}" for topic, index in lost[:_NAMES_A_LINE])
        more = f" and {len(lost) - _NAMES_A_LINE} more" if len(lost) > _NAMES_A_LINE else ""
        _logger.error(
            "the log directory of %d replicas on node %d was replaced: they are fetched again from other replicas (%s%s). A "
            "partition that stays without a leader had its newest records here only: `ottla leader-election --election-type "
            "unclean` gives these records up",
            len(lost),
            self._node_id,
            names,
            more,
        )

    def _change_of(self, planned: Sequence[tuple[TopicImage, int, PartitionImage]]) -> Change:
        """Return the change to new states, written only while the brokers that it elects are registered and live as planned."""
        elected = {state.leader for topic, index, state in planned if state.leader != topic.partitions[index].leader}
        leaders = sorted(elected - {NO_LEADER, self._node_id})
        created = {key: self._metadata.image.created_of(key) for key in map(keys.live_key, leaders)}
        change = changes.partition_states(self._metadata.image, planned, created)
        registered = {key: self._metadata.image.revision_of(key) for key in map(keys.broker_key, leaders)}
        return change._replace(expect={**change.expect, **registered})

    def _plan_restart(
        self, chunk: Sequence[tuple[bytes, int]], *, was_clean: bool
    ) -> list[tuple[TopicImage, int, PartitionImage]]:
        image = self._metadata.image

        def acceptable(partition: PartitionImage, node: int) -> bool:
            if node == self._node_id or node in partition.offline:
                return False
            return image.is_active(node)

        planned = []
        for topic_id, index in chunk:
            topic = image.topics_by_id.get(topic_id)
            if topic is None:  # deleted meanwhile
                continue
            before = topic.partitions[index]
            state = None
            if self._directories.has_lost(topic, index, self._node_id):
                state = take_replacement(before, self._node_id, partial(acceptable, before), self._directories.only_id)
            if state is None:
                state = take_restart(before, self._node_id, partial(acceptable, before), was_clean=was_clean)
            if state is not None:
                planned.append((topic, index, state))
        return planned

    async def _go_live(self) -> None:
        """Write the sign of life under a new lease, and renew it from then on."""
        key, broker_key = keys.live_key(self._node_id), keys.broker_key(self._node_id)
        while not self._has_ended():
            granted = await awaitable(self._store.grant(self._session_timeout_ms), self._scheduler)
            if not granted.id:
                self._warn("get a lease", granted.error)
            else:
                sign = Liveness(self._incarnation.id, granted.id, 0, applied=0)
                change = Change({key: 0, broker_key: self.epoch}, put={key: sign.encoded()}, lease=granted.id)
                outcome = await self._metadata.submit(change)
                if outcome.revision and not self._has_ended():
                    self.lease = granted.id
                    self._renewing = self._scheduler.background(self._renew(granted.id), "renewing the lease")
                    return
                await self._clear(granted, outcome)
                if self._has_ended():
                    return
                if broker_key in outcome.conflicts:
                    raise CannotJoin(_DUPLICATE.format(self._node_id))
            await self._scheduler.sleep(_RETRY_MS)

    def _has_ended(self) -> bool:
        return self._is_closed

    async def _clear(self, granted: LeaseOutcome, outcome: ChangeOutcome) -> None:
        """Revoke a lease that was granted in vain, and that of this broker's own sign of life which is still there."""
        if outcome.error is not None:
            self._warn("become live", outcome.error)
        await awaitable(self._store.revoke(granted.id), self._scheduler)
        sign = self._metadata.image.live.get(self._node_id)
        if sign is not None and sign.incarnation == self._incarnation.id:
            await awaitable(self._store.revoke(sign.lease), self._scheduler)

    def _warn(self, action: str, reason: str | None) -> None:
        """Log a step that is retried until it succeeds, at most every few seconds."""
        now_ms = self._clock.now_ms()
        if now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + _WARN_EVERY_MS
            _logger.warning("node %d cannot %s: %s; this is retried", self._node_id, action, reason)

    async def _renew(self, lease: int) -> None:
        """Renew a lease until it ends."""
        while lease == self.lease and not self._is_closed:
            await self._scheduler.sleep(self._session_timeout_ms // 4)
            outcome = await awaitable(self._store.renew(lease), self._scheduler)
            if outcome.id == 0 and outcome.error is None and lease == self.lease:
                _logger.warning("node %d has lost its lease: it becomes live again with a new one", self._node_id)
                self._restore()

    def _restore(self) -> None:
        """Become live again."""
        if self._is_restoring or self._is_closed or self._is_leaving:
            return
        self._is_restoring = True
        self.lease = 0

        async def restore() -> None:
            try:
                await self._go_live()
            except CannotJoin as cause:
                self._failed(str(cause))
            finally:
                self._is_restoring = False

        self._scheduler.background(restore(), "becoming live again")

    def apply(self, delta: Delta) -> None:
        """Act on a change of the metadata: this broker may be fenced, or another one registered in its place."""
        if not delta.membership or not self._is_joined or self._is_closed:
            return
        registered = delta.image.registered.get(self._node_id)
        if registered is None or registered.incarnation != self._incarnation.id:
            self._is_closed = True
            self._failed(_DUPLICATE.format(self._node_id))
        elif not self.is_live and self.lease:
            _logger.warning("node %d was fenced: it becomes live again", self._node_id)
            self._restore()

    async def leave(self, *, hands_over: bool) -> bool:
        """Leave the cluster: first the other brokers take over what this one leads, then its sign of life is removed.

        hands_over  False: the sign of life is removed at once; see `controlled.shutdown.enable`

        Return False if the store did not confirm it in time.
        """
        if not self.lease or self._is_closed:
            self.close()
            return True
        self._is_leaving = True
        try:
            if hands_over:
                self.shutdown = self._shutdown()
                # A task of its own: what it writes last is on the way to the store before the sign of life is removed.
                await self._scheduler.start(self.shutdown.run(), "controlled shutdown")
        except Exception as error:  # noqa: BLE001  (a bug there must not keep this broker from leaving)
            self._scheduler.on_error("controlled shutdown", error)
        self.close()
        return await awaitable(self._store.revoke(self.lease), self._scheduler) if self.lease else True

    def act_on_shutdown(self, delta: Delta) -> None:
        """Pass a change of the metadata to the controlled shutdown, if it has begun."""
        if self.shutdown is not None:
            self.shutdown.apply(delta)

    def _shutdown(self) -> ControlledShutdown:
        return ControlledShutdown(
            self._node_id,
            self._metadata,
            self._clock,
            self._scheduler,
            self._writer,
            lambda: self._own_sign() is not None,
            self._resign,
        )

    def _resign(self) -> None:
        """Let another broker become controller: the elections are its work."""
        controller = self._metadata.image.controller
        if self._is_resigning or controller is None or controller.lease != self.lease:
            return
        self._is_resigning = True
        change = Change(created={keys.CONTROLLER: controller.epoch}, delete=[keys.CONTROLLER])
        self._scheduler.background(self._write_resignation(change), "the resignation of the controller")

    async def _write_resignation(self, change: Change) -> None:
        try:
            await self._metadata.submit(change)
        finally:
            self._is_resigning = False

    def close(self) -> None:
        """Renew the lease no longer."""
        self._is_closed = True
        if self._renewing is not None:
            self._renewing.cancel()
