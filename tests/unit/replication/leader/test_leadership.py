"""The leader's view of a partition: positions of followers, ISR, high watermark, proposals of another ISR."""

from ottla.metadata.image import PartitionImage
from ottla.replication.leader.leadership import UNKNOWN, Leadership

_LAG_MS = 30_000
_EPOCHS = {1: 11, 2: 12, 3: 13}
"""Broker epochs of the live registrations."""


class Leader:
    """Leadership of node 1 over a partition with replicas 1, 2, 3."""

    def __init__(
        self, isr: tuple[int, ...] = (1, 2, 3), min_isr: int = 1, end: int = 10, high_watermark: int = 0
    ) -> None:
        self.state = PartitionImage((1, 2, 3), isr, 1, 5, epoch=7)
        self.end = end
        self.high_watermark = high_watermark
        self.now_ms = 1_000_000
        self.live = dict(_EPOCHS)
        self.leadership = Leadership(
            1, self.state, min_isr, 0, end, self.now_ms, _LAG_MS, lambda node, epoch: self.live.get(node) == epoch
        )

    def fetch(self, node: int, offset: int, broker_epoch: int | None = None) -> int:
        epoch = _EPOCHS[node] if broker_epoch is None else broker_epoch
        self.leadership.record_fetch(node, offset, 0, epoch, self.end, self.now_ms)
        return self.committed()

    def committed(self) -> int:
        committed = self.leadership.committed(self.end)
        self.high_watermark = max(self.high_watermark, committed)
        return committed

    def proposal(self, *, shrinks: bool = False) -> tuple[int, ...] | None:
        state = self.leadership.proposal(self.end, self.high_watermark, shrinks=shrinks)
        return None if state is None else state.isr

    def written(self, isr: tuple[int, ...]) -> None:
        self.state = self.state._replace(isr=isr, epoch=self.state.epoch + 1)
        self.leadership.update(self.state, 1, 0)


def test_nothing_is_committed_before_every_member_has_fetched_in_this_epoch() -> None:
    leader = Leader()
    assert leader.committed() == UNKNOWN
    assert leader.fetch(2, 10) == UNKNOWN
    assert leader.fetch(3, 8) == 8
    assert leader.fetch(3, 10) == 10


def test_a_member_that_is_behind_holds_the_high_watermark() -> None:
    leader = Leader()
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.end = 20
    assert leader.fetch(2, 20) == 10
    assert leader.fetch(3, 15) == 15


def test_a_replica_outside_the_isr_is_waited_for_while_it_is_caught_up() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10)
    assert leader.fetch(3, 4) == 10  # it is far behind, and never was caught up
    leader.fetch(3, 10)
    leader.end = 12
    leader.fetch(2, 12)
    assert leader.committed() == 10  # caught up a moment ago: it may join the ISR
    leader.live.pop(3)
    assert leader.committed() == 12
    leader.live[3] = _EPOCHS[3]
    leader.now_ms += _LAG_MS + 1
    leader.leadership.observe(leader.end, leader.now_ms)
    assert leader.committed() == 12


def test_the_high_watermark_stands_while_too_few_replicas_are_in_sync() -> None:
    leader = Leader(isr=(1,), min_isr=2)
    assert leader.leadership.is_under_min_isr
    assert leader.committed() == UNKNOWN
    leader = Leader(isr=(1,), min_isr=1)
    assert leader.committed() == 10


def test_min_insync_replicas_is_at_most_the_number_of_replicas() -> None:
    leader = Leader(min_isr=5)
    assert not leader.leadership.is_under_min_isr


def test_a_replica_joins_when_it_has_what_is_committed_and_the_beginning_of_the_epoch() -> None:
    leader = Leader(isr=(1, 2), end=10, high_watermark=4)
    leader.fetch(3, 6)  # above the high watermark, but it may lack the end of an earlier epoch
    assert leader.proposal() is None
    leader.fetch(3, 10)
    assert leader.proposal() == (1, 2, 3)


def test_a_replica_of_an_earlier_registration_does_not_join() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 10, broker_epoch=_EPOCHS[3] - 1)
    assert leader.proposal() is None
    leader.fetch(3, 10)
    assert leader.proposal() == (1, 2, 3)


def test_a_proposed_member_is_waited_for_until_the_proposal_is_refused() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert leader.proposal() == (1, 2, 3)
    assert leader.proposal() is None  # one at a time
    leader.live.pop(3)
    leader.end = 15
    assert leader.fetch(2, 15) == 10
    leader.leadership.record_refusal()
    assert leader.committed() == 15


def test_a_proposal_of_unknown_outcome_is_waited_for_until_the_state_is_newer() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert leader.proposal() == (1, 2, 3)
    leader.leadership.record_doubt()
    leader.live.pop(3)
    leader.end = 15
    assert leader.fetch(2, 15) == 10
    # A write of the present ISR decides it: whichever is written makes the other one fail.
    leader.now_ms += _LAG_MS + 1
    leader.leadership.observe(leader.end, leader.now_ms)
    leader.fetch(2, 15)
    assert leader.proposal(shrinks=True) == (1, 2)
    leader.leadership.record_refusal()
    assert leader.committed() == 10
    leader.written((1, 2))
    assert leader.committed() == 15


def test_a_refusal_does_not_decide_an_earlier_write_of_the_same_isr() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert leader.proposal() == (1, 2, 3)
    leader.leadership.record_doubt()
    assert leader.proposal() == (1, 2, 3)
    leader.leadership.record_refusal()
    assert leader.leadership.maximal_isr == {1, 2, 3}


def test_a_member_that_lags_is_removed_and_the_leader_never() -> None:
    leader = Leader()
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.end = 20
    leader.now_ms += _LAG_MS
    leader.fetch(2, 20)
    leader.leadership.observe(leader.end, leader.now_ms)
    assert not leader.leadership.has_lagging(leader.end)
    leader.now_ms += _LAG_MS // 2 + 1
    leader.fetch(2, 20)
    leader.leadership.observe(leader.end, leader.now_ms)
    assert leader.leadership.has_lagging(leader.end)
    assert leader.proposal() is None
    assert leader.proposal(shrinks=True) == (1, 2)
    assert leader.committed() == 10  # a removal counts when the metadata shows it
    leader.written((1, 2))
    assert leader.committed() == 20


def test_a_member_that_lags_does_not_join_again_before_it_has_caught_up() -> None:
    leader = Leader(isr=(1, 2), min_isr=2)
    leader.fetch(2, 10)
    leader.end = 20
    leader.now_ms += _LAG_MS + 1
    leader.leadership.observe(leader.end, leader.now_ms)
    assert leader.proposal(shrinks=True) == (1,)
    leader.state = leader.state._replace(isr=(1,), epoch=8)
    leader.leadership.update(leader.state, 2, 0)
    assert leader.high_watermark == 10, "it stands still below min.insync.replicas"
    assert leader.proposal(shrinks=True) is None
    leader.fetch(2, 15)
    assert leader.proposal(shrinks=True) is None
    leader.end = 30
    leader.now_ms += 10
    leader.fetch(2, 20)  # all that the leader had at the fetch before
    assert leader.proposal(shrinks=True) == (1, 2)


def test_an_idle_follower_stays_in_sync_without_fetching() -> None:
    leader = Leader()
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    for _ in range(10):
        leader.now_ms += _LAG_MS // 2
        leader.leadership.observe(leader.end, leader.now_ms)
    leader.end = 11
    leader.now_ms += _LAG_MS // 2
    leader.leadership.observe(leader.end, leader.now_ms)
    assert not leader.leadership.has_lagging(leader.end)


def test_the_state_after_an_unclean_election_is_confirmed() -> None:
    leader = Leader(isr=(1,))
    recovering = leader.state._replace(is_recovering=True, epoch=8)
    leader.leadership.update(recovering, 1, 0)
    state = leader.leadership.proposal(10, 10)
    assert state is not None
    assert (state.isr, state.is_recovering, state.epoch) == ((1,), False, 9)


def test_a_replica_whose_disk_has_failed_does_not_join_again() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 10)
    leader.leadership.update(leader.state._replace(offline=(3,), epoch=8), 1, 0)
    assert leader.proposal() is None


def test_the_number_of_replicas_that_have_an_offset_is_counted() -> None:
    leader = Leader()
    assert leader.leadership.count_replicas(10) == 1
    leader.fetch(2, 10)
    assert leader.leadership.count_replicas(10) == 2
    assert leader.leadership.count_replicas(11) == 1


def eligible(isr: tuple[int, ...], elr: tuple[int, ...] = (), min_isr: int = 2, configured: int = 2) -> Leader:
    """Return a leader with eligible leader replicas; `min_isr` is in force, `configured` in the config."""
    leader = Leader(isr=isr)
    leader.state = leader.state._replace(elr=elr, min_isr=min_isr, epoch=8)
    leader.leadership.update(leader.state, configured, configured)
    return leader


def test_a_member_that_lags_enters_the_elr_when_the_isr_becomes_too_small() -> None:
    leader = eligible((1, 2))
    leader.fetch(2, 10)
    leader.end = 20
    leader.now_ms += _LAG_MS + 1
    leader.leadership.observe(leader.end, leader.now_ms)
    leader.now_ms += _LAG_MS + 1
    leader.leadership.observe(leader.end, leader.now_ms)
    state = leader.leadership.proposal(leader.end, 10, shrinks=True)
    assert state is not None
    assert (state.isr, state.elr, state.min_isr) == ((1,), (2,), 2)
    leader.leadership.update(state, 2, 2)
    assert leader.committed() == UNKNOWN
    leader.fetch(2, 20)
    grown = leader.leadership.proposal(leader.end, 10)
    assert grown is not None
    assert (grown.isr, grown.elr) == ((1, 2), ())


def test_a_changed_config_counts_when_the_state_has_it() -> None:
    leader = eligible((1,), elr=(2,))
    leader.leadership.update(leader.state, 1, 1)
    assert leader.leadership.is_under_min_isr
    assert leader.committed() == UNKNOWN
    state = leader.leadership.proposal(leader.end, 0)
    assert state is not None
    assert (state.isr, state.elr, state.min_isr) == ((1,), (), 1)
    assert leader.committed() == UNKNOWN, "it is only proposed"
    leader.leadership.update(state, 1, 1)
    assert not leader.leadership.is_outdated
    assert leader.committed() == 10


def test_the_feature_is_turned_on_and_off_by_the_leader() -> None:
    leader = Leader(isr=(1, 2), min_isr=2)
    assert leader.proposal() is None, "without the feature no state is written"
    leader.leadership.update(leader.state, 2, 2)
    on = leader.leadership.proposal(leader.end, 0)
    assert on is not None
    assert (on.isr, on.min_isr, on.epoch) == ((1, 2), 2, 8)
    leader.leadership.update(on, 2, 2)
    assert leader.proposal() is None
    leader.leadership.update(on, 2, 0)
    off = leader.leadership.proposal(leader.end, 0)
    assert off is not None
    assert off.min_isr == 0
