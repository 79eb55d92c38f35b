"""Reassignments of partitions: each step as an example, and properties over random sequences of requests and failures."""

import random
from collections.abc import Callable

from ottla.metadata.changes.elections import ElectionRules, online, without
from ottla.metadata.changes.reassignment import (
    begun,
    cancelled,
    completed,
    is_reassigned,
    keeps_records,
    original_of,
    still_adding,
    target_of,
)
from ottla.metadata.image import NO_LEADER, UNASSIGNED, PartitionImage

_RULES = ElectionRules(min_isr=1)
_WALKS = 400
_STEPS = 60


def always(node: int) -> bool:
    return True


def of(*replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None) -> PartitionImage:
    """Return a partition that is not new."""
    isr = replicas if isr is None else isr
    return PartitionImage(replicas, isr, isr[0] if leader is None else leader, 5, epoch=9)


def joined(partition: PartitionImage, *nodes: int) -> PartitionImage:
    return partition._replace(isr=(*partition.isr, *nodes), epoch=partition.epoch + 1)


def shape(partition: PartitionImage | None) -> tuple[object, ...]:
    """Return replicas, ISR, adding, removing, leader and leader epoch."""
    assert partition is not None
    one = partition
    return one.replicas, one.isr, one.adding, one.removing, one.leader, one.leader_epoch


def test_a_new_replica_is_added_and_waited_for() -> None:
    state = begun(of(1, 2), (1, 3))
    assert shape(state) == ((1, 3, 2), (1, 2), (3,), (2,), 1, 5)
    assert (state.epoch, target_of(state), original_of(state)) == (10, (1, 3), (1, 2))
    assert completed(state, always, _RULES) is None
    assert shape(completed(joined(state, 3), always, _RULES)) == ((1, 3), (1, 3), (), (), 1, 6)


def test_all_of_the_target_must_be_in_sync_not_only_what_is_added() -> None:
    state = begun(of(1, 2, 3, isr=(1, 2)), (1, 3))
    assert (state.adding, state.removing) == ((), (2,))
    assert completed(state, always, _RULES) is None
    assert shape(completed(joined(state, 3), always, _RULES)) == ((1, 3), (1, 3), (), (), 1, 6)


def test_a_removed_leader_is_replaced_by_the_first_of_the_target_that_may_lead() -> None:
    state = joined(begun(of(1), (2, 3)), 2, 3)
    assert shape(completed(state, always, _RULES)) == ((2, 3), (2, 3), (), (), 2, 6)
    assert shape(completed(state, lambda node: node != 2, _RULES)) == ((2, 3), (2, 3), (), (), 3, 6)
    assert completed(state, lambda node: node == 1, _RULES) is None, "no leader: the old replicas go on"
    unclean = ElectionRules(1, allows_unclean=True)
    assert completed(state._replace(isr=(1, 2)), always, unclean) is None, "records are not given up for a reassignment"


def test_another_order_is_no_new_leader_epoch() -> None:
    state = begun(of(1, 2), (2, 1))
    assert shape(state) == ((2, 1), (1, 2), (), (), 1, 5)
    assert not is_reassigned(state)
    assert begun(of(1, 2), (1, 2)) == of(1, 2)


def test_more_replicas_are_added_in_the_same_leader_epoch() -> None:
    state = begun(of(1), (1, 2, 3))
    assert shape(completed(joined(state, 2, 3), always, _RULES)) == ((1, 2, 3), (1, 2, 3), (), (), 1, 5)


def test_a_cancelled_reassignment_removes_what_it_has_added() -> None:
    state = cancelled(joined(begun(of(1, 2), (3, 4)), 3))
    assert shape(completed(state, always, _RULES)) == ((1, 2), (1, 2), (), (), 1, 6)
    led_by_new = cancelled(joined(begun(of(1, 2), (3, 4)), 3)._replace(leader=3))
    assert shape(completed(led_by_new, always, _RULES)) == ((1, 2), (1, 2), (), (), 1, 6)
    assert not is_reassigned(cancelled(begun(of(1, 2), (1,)))), "nothing was added"


def test_a_cancelled_reassignment_does_not_wait_for_replicas_that_were_out_of_sync_before() -> None:
    state = cancelled(begun(of(1, 2, 3, isr=(1, 2)), (1, 4)))
    assert shape(completed(state, always, _RULES)) == ((1, 2, 3), (1, 2), (), (), 1, 6)


def test_the_present_replicas_as_target_end_a_reassignment() -> None:
    """Apache Kafka 4.4 keeps the new replica among the added and the removed ones, and never completes it."""
    state = begun(begun(of(1, 2), (3, 1, 2)), (1, 2))
    assert (state.adding, state.removing, still_adding(state)) == ((3,), (3,), ())
    assert shape(completed(state, always, _RULES)) == ((1, 2), (1, 2), (), (), 1, 6)


def test_cancelling_a_replaced_reassignment_restores_the_first_replicas() -> None:
    """Apache Kafka 4.4 forgets that the reassignment before had added a replica, and keeps it."""
    state = begun(begun(of(1), (2,)), (3,))
    assert shape(state) == ((3, 1, 2), (1,), (2, 3), (1, 2), 1, 5)
    assert still_adding(state) == (3,)
    assert shape(completed(cancelled(state), always, _RULES)) == ((1,), (1,), (), (), 1, 6)
    assert shape(completed(joined(state, 3), always, _RULES)) == ((3,), (3,), (), (), 3, 6)


def test_a_cancellation_without_an_original_replica_in_sync_is_an_unclean_election() -> None:
    state = joined(begun(of(1), (2,)), 2)._replace(isr=(2,), leader=2)
    assert not keeps_records(state)
    assert completed(cancelled(state), always, _RULES) is None
    result = completed(cancelled(state), always, ElectionRules(1, allows_unclean=True))
    assert shape(result) == ((1,), (1,), (), (), 1, 6)
    assert result is not None
    assert result.is_recovering


def test_directories_and_offline_replicas_follow_their_nodes() -> None:
    one, two = b"1" * 16, b"2" * 16
    state = begun(of(1, 2, isr=(1,))._replace(directories=(one, two), offline=(2,)), (3, 1))
    assert (state.replicas, state.directories, state.offline) == ((3, 1, 2), (UNASSIGNED, one, two), (2,))
    result = completed(joined(state, 3), always, _RULES)
    assert result is not None
    assert (result.directories, result.offline) == ((UNASSIGNED, one), ())


def test_replicas_that_leave_are_not_eligible_any_more() -> None:
    rules = ElectionRules(min_isr=2)
    state = begun(of(1, 2, 3, isr=(1,))._replace(elr=(2, 3), min_isr=2), (1,))
    assert shape(completed(state, always, rules)) == ((1,), (1,), (), (), 1, 6)
    result = completed(state, always, rules)
    assert result is not None
    assert result.elr == ()
    cut = completed(cancelled(begun(of(1, 2, isr=(1,))._replace(elr=(2,), min_isr=2), (4,))), always, rules)
    assert cut is not None
    assert cut.elr == (2,), "an original replica stays eligible"


class _Walk:
    """A partition in a cluster where anything may happen next."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.nodes = range(1, 6)
        replicas = tuple(dice.sample(self.nodes, dice.randint(1, 3)))
        self.original = replicas
        self.live = set(self.nodes)
        self.rules = ElectionRules(dice.randint(1, 3) if dice.random() < 0.5 else 0)
        self.partition = PartitionImage.new(replicas, self.rules.min_isr)

    def acceptable(self, node: int) -> bool:
        return node in self.live

    def put(self, state: PartitionImage | None) -> None:
        if state is None or state == self.partition:
            return
        before, self.partition = self.partition, state
        assert state.epoch > before.epoch
        assert len(set(state.replicas)) == len(state.replicas) > 0
        assert set(state.isr) | set(state.elr) <= set(state.replicas)
        assert set(state.adding) | set(state.removing) <= set(state.replicas)
        assert state.leader == NO_LEADER or state.leader in state.isr
        assert set(target_of(state)), "some replica stays"
        if set(before.replicas) - set(state.replicas) or state.leader != before.leader:
            assert state.leader_epoch > before.leader_epoch
        if not is_reassigned(state):
            self.original = state.replicas
        elif not is_reassigned(before):
            self.original = before.replicas
        assert set(original_of(state)) == set(self.original)

    def completion(self) -> None:
        before = self.partition
        self.put(completed(before, self.acceptable, self.rules))
        if self.partition != before:
            assert self.partition.replicas == target_of(before)
            was_cancelled = set(target_of(before)) == set(original_of(before))
            assert was_cancelled or set(self.partition.isr) == set(self.partition.replicas)
            assert set(self.partition.isr) == set(before.isr) & set(target_of(before)), "no replica joins by the way"
            assert self.partition.leader in before.isr

    def step(self) -> None:
        dice, before = self.dice, self.partition
        actions: list[Callable[[], None]] = [
            lambda: self.put(begun(before, dice.sample(self.nodes, dice.randint(1, 3)))),
            lambda: self.put(cancelled(before)) if is_reassigned(before) and keeps_records(before) else None,
            self.completion,
            self.completion,
            self.fence,
            lambda: self.live.add(dice.choice(self.nodes)),
            self.join,
            self.join,
            lambda: self.put(online(before, self.acceptable, self.rules)),
        ]
        dice.choice(actions)()

    def fence(self) -> None:
        node = self.dice.choice(self.nodes)
        self.live.discard(node)
        if node in self.partition.isr:
            self.put(without(self.partition, node, self.acceptable, self.rules))

    def join(self) -> None:
        waiting = [node for node in self.partition.replicas if node not in self.partition.isr and node in self.live]
        if waiting and self.partition.leader != NO_LEADER:
            node = self.dice.choice(waiting)
            elr = tuple(other for other in self.partition.elr if other != node)
            self.put(joined(self.partition, node)._replace(elr=elr))

    def rest(self) -> None:
        """All brokers are back, all replicas catch up, the controller acts."""
        self.live = set(self.nodes)
        for _ in range(12):
            self.put(online(self.partition, self.acceptable, self.rules))
            self.join()
            self.completion()


def test_random_requests_and_failures(dice_seed: int) -> None:
    dice = random.Random(dice_seed)
    ended = 0
    for _ in range(_WALKS):
        walk = _Walk(dice)
        for _ in range(_STEPS):
            walk.step()
            ended += not is_reassigned(walk.partition)
        walk.rest()
        assert not is_reassigned(walk.partition), walk.partition
    assert ended > _WALKS
