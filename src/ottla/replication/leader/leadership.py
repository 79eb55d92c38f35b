"""Leadership of a partition with several replicas, in one leader epoch: positions of its followers, ISR and high watermark.

    isr           replicas in sync, as stored in the metadata
    proposed      ISRs that this leader has written, or may have written, and that the metadata does not show yet
    maximal ISR   union of both: the high watermark waits for all of its members (KIP-497), because an addition may have taken
                  effect already, and a removal only counts when the metadata shows it

A write of unknown outcome stays proposed until the metadata shows a newer state of the partition: that it still shows the old
one proves nothing. Positions are unknown at the beginning of an epoch, until each follower has fetched.

With eligible leader replicas the min.insync.replicas of the state counts, not that of the config: the members of the ELR have
everything that was committed, because nothing is committed while the ISR is smaller than that value. A changed config is
proposed like a change of the ISR, and counts when the metadata shows it.

No clock and no metadata here: times (ms) and eligibility are arguments.
"""

from collections.abc import Callable
from typing import Final

from ottla.metadata.changes.elections import with_isr, with_min_isr
from ottla.metadata.image import PartitionImage

UNKNOWN: Final = -1
_NEVER_MS: Final = -(1 << 62)
_NO_PROPOSAL: Final[tuple[int, ...]] = ()


class Follower:
    """Follower of a partition, as its leader sees it.

    end_offset    its log end offset: that of its last fetch; UNKNOWN before the first one in this leader epoch
    start_offset  its log start offset
    broker_epoch  broker epoch in its last fetch, -1 if it sent none
    """

    __slots__ = ("_fetched_ms", "_leader_end", "broker_epoch", "caught_up_ms", "end_offset", "node_id", "start_offset")

    def __init__(self, node_id: int, caught_up_ms: int) -> None:
        self.node_id = node_id
        self.end_offset = UNKNOWN
        self.start_offset = UNKNOWN
        self.broker_epoch = -1
        self.caught_up_ms = caught_up_ms
        """Last time at which it had everything that the leader had."""
        self._fetched_ms = _NEVER_MS
        self._leader_end = UNKNOWN
        """Log end of the leader at `_fetched_ms`."""

    def record_fetch(self, offset: int, start_offset: int, broker_epoch: int, leader_end: int, now_ms: int) -> None:
        """Record a fetch from `offset`, while `leader_end` is the end of the leader's log."""
        self.end_offset, self.start_offset, self.broker_epoch = offset, start_offset, broker_epoch
        self.observe(leader_end, now_ms)

    def observe(self, leader_end: int, now_ms: int) -> None:
        """Update the time at which it was caught up: an idle follower is so without a fetch."""
        if self.end_offset >= leader_end:
            self.caught_up_ms = now_ms
        elif self.end_offset >= self._leader_end != UNKNOWN:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self._leader_end, self._fetched_ms = leader_end, now_ms


class Leadership:
    """State of the leader of a partition.

    node_id      the leader's node id
    state        the partition in the metadata
    min_isr      min.insync.replicas of the topic, for a state without a value of its own
    next_min_isr  value that the state should have; 0 without eligible leader replicas
    epoch_start  offset at which the leader epoch begins (inclusive)
    max_lag_ms   replica.lag.time.max.ms
    is_eligible  returns True if a broker (node id, broker epoch) is live, does not stop, and has this registration
    """

    def __init__(
        self,
        node_id: int,
        state: PartitionImage,
        min_isr: int,
        next_min_isr: int,
        epoch_start: int,
        now_ms: int,
        max_lag_ms: int,
        is_eligible: Callable[[int, int], bool],
    ) -> None:
        self.node_id = node_id
        self.epoch = state.leader_epoch
        self.epoch_start = epoch_start
        self._now_ms = now_ms
        self._max_lag_ms = max_lag_ms
        self._is_eligible = is_eligible
        self._proposed: list[tuple[int, ...]] = []
        self._doubted: list[tuple[int, ...]] = []
        """Proposals of unknown outcome."""
        self._in_flight = _NO_PROPOSAL
        self.followers: dict[int, Follower] = {}
        self.state = state
        self.maximal_isr = frozenset(state.isr)
        self.min_isr = 1
        self._next_min_isr = 0
        self._take(state, min_isr, next_min_isr)

    def update(self, state: PartitionImage, min_isr: int, next_min_isr: int) -> None:
        """Take over a newer state of the partition, or another min.insync.replicas, in the same leader epoch."""
        if state.epoch != self.state.epoch:
            # A newer state decides all proposals: each was compared with the state before it.
            self._proposed.clear()
            self._doubted.clear()
            self._in_flight = _NO_PROPOSAL
        self._take(state, min_isr, next_min_isr)

    def _take(self, state: PartitionImage, min_isr: int, next_min_isr: int) -> None:
        self.state = state
        self.min_isr = min(state.min_isr or min_isr, len(state.replicas))
        self._next_min_isr = next_min_isr
        self.followers = {
            node: self.followers.get(node) or Follower(node, self._now_ms if node in state.isr else _NEVER_MS)
            for node in state.replicas
            if node != self.node_id
        }
        self._set_maximal()

    def _set_maximal(self) -> None:
        self.maximal_isr = frozenset(self.state.isr).union(*self._proposed)

    @property
    def is_under_min_isr(self) -> bool:
        """True while nothing can be committed, because too few replicas are in sync."""
        return len(self.state.isr) < self.min_isr

    @property
    def lacks_followers(self) -> bool:
        """True if the maximal ISR is smaller than min.insync.replicas."""
        return len(self.maximal_isr) < self.min_isr

    def record_fetch(
        self, node_id: int, offset: int, start_offset: int, broker_epoch: int, leader_end: int, now_ms: int
    ) -> bool:
        """Record a follower's fetch; returns True if its position has changed."""
        follower = self.followers[node_id]
        before = follower.end_offset, follower.start_offset
        self._now_ms = now_ms
        follower.record_fetch(offset, start_offset, broker_epoch, leader_end, now_ms)
        return before != (offset, start_offset)

    def committed(self, local_end: int) -> int:
        """Return the offset (exclusive) up to which everything is committed; UNKNOWN if that cannot be said.

        local_end  end of the leader's log, or of its flushed part where flush.messages demands flushes

        Followers outside the ISR that are caught up are waited for: otherwise they could never join it while the high
        watermark moves.
        """
        if self.is_under_min_isr:
            return UNKNOWN
        lowest = local_end
        for node, follower in self.followers.items():
            if follower.end_offset < lowest and (node in self.maximal_isr or self._is_awaited(follower)):
                lowest = follower.end_offset
        return lowest

    def _is_awaited(self, follower: Follower) -> bool:
        is_caught_up = self._now_ms - follower.caught_up_ms <= self._max_lag_ms
        return is_caught_up and self._is_usable(follower)

    def _is_usable(self, follower: Follower) -> bool:
        """Return True if a follower's last fetch is of the registration that is live (KIP-903), and its disk has not failed."""
        node_id = follower.node_id
        return node_id not in self.state.offline and self._is_eligible(node_id, follower.broker_epoch)

    def count_replicas(self, offset: int) -> int:
        """Return the number of replicas, with the leader, that have all records below `offset`."""
        return 1 + sum(follower.end_offset >= offset for follower in self.followers.values())

    def low_watermark(self, start_offset: int) -> int:
        """Return the smallest log start offset of the leader, given, and its live followers."""
        live = (follower.start_offset for follower in self.followers.values() if self._is_usable(follower))
        return min((start_offset, *live))

    def observe(self, leader_end: int, now_ms: int) -> None:
        """Update the times at which followers were caught up; called often compared with the maximum lag."""
        self._now_ms = now_ms
        for follower in self.followers.values():
            follower.observe(leader_end, now_ms)

    # -- changes of the ISR --

    @property
    def is_outdated(self) -> bool:
        """True if the state is to be written again after an unclean election, or for a changed config."""
        return self.state.is_recovering or self.state.min_isr != self._next_min_isr

    def proposal(self, leader_end: int, high_watermark: int, *, shrinks: bool = False) -> PartitionImage | None:
        """Return the next state of the partition to write, None if it needs no change or one is in flight.

        shrinks  whether members that are out of sync are removed
        """
        if self._in_flight:
            return None
        state = self.state
        stays = self._is_in_sync if shrinks else _always
        kept = [node for node in state.isr if node == self.node_id or stays(self.followers[node], leader_end)]
        added = [
            node
            for node, follower in self.followers.items()
            if node not in state.isr and self._may_join(follower, leader_end, high_watermark)
        ]
        isr = (*kept, *added)
        # With proposals of unknown outcome the same ISR is written again: the newer state decides them.
        if isr == state.isr and not self._proposed and not self.is_outdated:
            return None
        self._in_flight = isr
        if isr not in self._proposed:
            self._proposed.append(isr)
        self._set_maximal()
        # In this order: a member that leaves the ISR together with a new value does not enter the ELR.
        proposed = with_min_isr(with_isr(state, isr), self._next_min_isr)
        return proposed._replace(is_recovering=False, epoch=state.epoch + 1)

    def may_grow(self, node_id: int, leader_end: int, high_watermark: int) -> bool:
        """Return True if a follower that has fetched should join the ISR."""
        return node_id not in self.state.isr and self._may_join(self.followers[node_id], leader_end, high_watermark)

    def _may_join(self, follower: Follower, leader_end: int, high_watermark: int) -> bool:
        """Return True if a follower may join the ISR: it has all that is committed and the beginning of this leader epoch, and
        is in sync. While the ISR is below min.insync.replicas the high watermark stands still, and a follower that was removed
        because it lags has all below it: it would be added and removed with every change.
        """
        has_committed = follower.end_offset >= max(high_watermark, self.epoch_start)
        return has_committed and self._is_in_sync(follower, leader_end) and self._is_usable(follower)

    def _is_in_sync(self, follower: Follower, leader_end: int) -> bool:
        return follower.end_offset >= leader_end or self._now_ms - follower.caught_up_ms <= self._max_lag_ms

    def has_lagging(self, leader_end: int) -> bool:
        """Return True if a member of the ISR is out of sync."""
        return any(
            node != self.node_id and not self._is_in_sync(self.followers[node], leader_end) for node in self.state.isr
        )

    def record_refusal(self) -> None:
        """Record that the proposal in flight was not written, and never will be."""
        if self._in_flight in self._proposed and self._in_flight not in self._doubted:
            self._proposed.remove(self._in_flight)
        self._in_flight = _NO_PROPOSAL
        self._set_maximal()

    def record_doubt(self) -> None:
        """Record that the outcome of the proposal in flight is unknown: it may still be written."""
        self._doubted.append(self._in_flight)
        self._in_flight = _NO_PROPOSAL


def _always(follower: Follower, leader_end: int) -> bool:  # noqa: ARG001
    return True
