"""Properties of elections, over random partitions and brokers, and over random sequences of failures and restarts."""

import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
from tests.unit.metadata.election_case import ElectionCase

from ottla.metadata.changes.elections import (
    ElectionRules,
    elect_any,
    elect_leader,
    elect_preferred,
    remove_damaged,
    remove_from_isr,
    take_restart,
)
from ottla.metadata.image import NO_LEADER, PartitionImage

_PARTITIONS = 2_000
_WALKS = 500
_STEPS = 60
_OPERATIONS = (
    *("fence", "live", "live", "live", "stop", "disk-fails", "disk-back", "restart", "replace"),
    *("leave", "join", "join", "commit", "commit", "preferred", "unclean", "min"),
)


class _Call(NamedTuple):
    """Call of an election function.

    removed  replica that the call takes out of the ISR, NO_LEADER for none
    node     broker that has started again, NO_LEADER otherwise
    """

    name: str
    run: Callable[[PartitionImage], PartitionImage | None]
    removed: int = NO_LEADER
    node: int = NO_LEADER
    may_be_unclean: bool = True


class _Generated:
    """A valid partition state, with brokers and rules."""

    def __init__(self, dice: random.Random) -> None:
        replicas = tuple(dice.sample(range(1, 8), dice.randint(1, 4)))
        has_elr = dice.random() < 0.6
        self.rules = ElectionRules(dice.randint(1, 4) if has_elr else 0, dice.random() < 0.3)
        self.min_isr = min(self.rules.min_isr, len(replicas))
        self.offline = tuple(node for node in replicas if dice.random() < 0.15)
        self.unacceptable = {node for node in replicas if dice.random() < 0.4} | set(self.offline)
        size = dice.randint(0 if has_elr else 1, len(replicas))
        isr = tuple(dice.sample(replicas, size))
        others = [node for node in replicas if node not in isr]
        elr: tuple[int, ...] = ()
        if has_elr and size < self.min_isr:
            elr = tuple(node for node in others if dice.random() < 0.5)
        leader = dice.choice(isr) if isr and dice.random() < 0.8 else NO_LEADER
        remembered = dice.choice(replicas) if has_elr and not isr else NO_LEADER
        state = PartitionImage(replicas, isr, leader, dice.randrange(9), (), dice.randrange(9))
        self.partition = state._replace(
            elr=elr, last_known_leader=remembered, min_isr=self.rules.min_isr, offline=self.offline
        )
        self.dice = dice

    def acceptable(self, node: int) -> bool:
        return node not in self.unacceptable

    def calls(self) -> list[_Call]:
        """Return the calls of all functions for this partition."""
        rest = (self.acceptable, self.rules)
        node = self.dice.choice(self.partition.replicas)
        calls = [
            _Call("online", lambda one: elect_leader(one, *rest), may_be_unclean=self.rules.allows_unclean),
            _Call("preferred", lambda one: elect_preferred(one, self.acceptable), may_be_unclean=False),
            _Call("unclean", lambda one: elect_any(one, self.acceptable)),
        ]
        without_node = lambda one: remove_from_isr(one, node, *rest)  # noqa: E731
        calls.append(_Call("without", without_node, node, may_be_unclean=self.rules.allows_unclean))
        for was_clean in (True, False):
            others = lambda other: other != node and self.acceptable(other)  # noqa: E731
            run = partial(take_restart, node=node, acceptable=others, was_clean=was_clean)
            calls.append(_Call("restarted", run, NO_LEADER if was_clean else node, node, may_be_unclean=False))
        return calls


def _check(case: _Generated, call: _Call, before: PartitionImage, result: PartitionImage) -> None:
    isr, elr = set(result.isr), set(result.elr)
    remaining = [node for node in before.isr if node != call.removed]
    replicas = set(before.replicas)
    # Members are replicas, once, in one of the two sets.
    assert len(isr) == len(result.isr)
    assert len(elr) == len(result.elr)
    assert isr <= replicas
    assert elr <= replicas
    assert not isr & elr
    # Without ELR the last member of the ISR stays; with ELR it is remembered.
    assert isr or case.min_isr
    assert isr or elr or result.last_known_leader != NO_LEADER
    assert case.min_isr or not elr
    assert not elr or len(isr) < case.min_isr
    if result.leader != NO_LEADER:
        assert result.leader in isr
    # A clean leader was in the ISR, or in the ELR of an empty ISR. The last known leader is elected as an unclean one.
    became_unclean = result.is_recovering and not before.is_recovering
    changed = result.leader != before.leader
    if changed and result.leader != NO_LEADER and not became_unclean:
        assert result.leader in (remaining or (*before.isr, *before.elr))  # a member that leaves may go to the ELR
    if became_unclean:
        assert result.isr == (result.leader,)
        assert not elr
        assert call.may_be_unclean or (not remaining and result.leader == before.last_known_leader)
        assert not any(case.acceptable(node) for node in remaining if node != call.node)
    if changed and result.leader != NO_LEADER:
        assert case.acceptable(result.leader) or result.leader == call.node
    # The leader epoch rises exactly if the leader changes, or leads again after its restart.
    leads_again = call.name == "restarted" and before.leader == call.node and not changed
    assert result.leader_epoch == before.leader_epoch + (changed or leads_again)
    assert result.epoch == before.epoch + 1
    kept = ("replicas", "directories", "adding", "removing", "min_isr", "offline")
    assert all(getattr(result, name) == getattr(before, name) for name in kept)


def test_each_function(dice_seed: int, pytestconfig: pytest.Config) -> None:
    dice = random.Random(dice_seed)
    counts: dict[str, int] = {}
    for _ in range(_PARTITIONS * pytestconfig.getoption("--soak")):
        case = _Generated(dice)
        for call in case.calls():
            before = case.partition
            result = call.run(before)
            if result is None:
                if call.name == "restarted":
                    assert before.leader != call.node  # never again in its old epoch
                continue
            _check(case, call, before, result)
            counts[call.name] = counts.get(call.name, 0) + 1
            leads_again = call.name == "restarted" and result.leader == call.node
            assert leads_again or call.run(result) is None, f"{call.name} changes {result} again"
    assert len(counts) == 5, counts
    assert min(counts.values()) > _PARTITIONS // 20, counts


def test_a_damaged_replica_is_replaced_in_a_new_epoch(dice_seed: int) -> None:
    dice = random.Random(dice_seed)
    outcomes = {True: 0, False: 0}
    for _ in range(_PARTITIONS):
        case = _Generated(dice)
        before = case.partition
        node = dice.choice(before.replicas)
        case.unacceptable.add(node)
        result = remove_damaged(before, node, case.acceptable)
        isr = [member for member in before.isr if member != node]
        clean = [member for member in isr or before.elr if case.acceptable(member)]
        outcomes[result is None] += 1
        if result is None:
            assert not clean
            continue
        assert result.leader in clean
        assert result.leader == before.leader or before.leader not in clean
        assert node not in (*result.isr, *result.elr)
        assert result.isr == (tuple(isr) or (result.leader,))
        assert (result.leader_epoch, result.epoch) == (before.leader_epoch + 1, before.epoch + 1)
        assert not result.is_recovering
    assert min(outcomes.values()) > _PARTITIONS // 20, outcomes


class _Walk:
    """Random failures of the brokers of one partition, with a count of what is committed.

    versions   newest committed version that each replica has
    committed  newest version that was acknowledged
    """

    def __init__(self, dice: random.Random) -> None:
        replicas = tuple(dice.sample(range(1, 6), dice.randint(1, 4)))
        self.needed = dice.randint(1, 3)
        rules = ElectionRules(self.needed if dice.random() < 0.6 else 0, dice.random() < 0.15)
        self.dice = dice
        self.case = ElectionCase(replicas, rules)
        self.versions = dict.fromkeys(replicas, 0)
        self.committed = 0
        self.elections = 0
        self.unclean = 0
        self.replacements = 0

    def step(self) -> None:
        case, before = self.case, self.case.partition
        operation = self.dice.choice(_OPERATIONS)
        node = self.dice.choice(before.replicas)
        if operation == "commit":
            self._commit()
        elif operation == "join":
            self._join(node)
        elif operation == "restart":
            self._restart(node)
        elif operation == "replace":
            if self.dice.random() < 0.3:
                self._replace(node)
        elif operation == "leave":
            if before.leader != NO_LEADER and node in before.isr and node != before.leader:
                case.play(f"leave {node}")
        elif operation == "disk-fails":
            if node not in before.offline:
                case.play(f"disk-fails {node}")
        elif operation == "min":
            if before.leader != NO_LEADER and self.dice.random() < 0.3:
                case.play(f"min {self.dice.randint(0, 3)}")
        elif operation == "unclean":
            if before.leader == NO_LEADER and self.dice.random() < 0.2:
                case.play("unclean")
        else:
            case.play(operation if operation == "preferred" else f"{operation} {node}")
        self._check(before)

    def _commit(self) -> None:
        one = self.case.partition
        if one.leader in self.case.live and len(one.isr) >= min(one.min_isr or self.needed, len(one.replicas)):
            self.committed += 1
            self.versions |= dict.fromkeys(one.isr, self.committed)

    def _join(self, node: int) -> None:
        one = self.case.partition
        if one.leader in self.case.live and self.case.acceptable(node) and node not in one.isr:
            self.versions[node] = self.versions[one.leader]
            self.case.play(f"join {node}")

    def _restart(self, node: int) -> None:
        """Restart a broker; after an unclean stop it may have lost what it had not flushed."""
        was_clean = self.dice.random() < 0.5
        self.case.play(f"restart {node} {'clean' if was_clean else 'unclean'}")
        if not was_clean:
            self.versions[node] = self.dice.randint(0, self.versions[node])
            if node in self.case.partition.isr:  # without ELR the last member stays, whatever it has lost
                self.committed = min(self.committed, self.versions[node])
        self.case.settle()
        if self.dice.random() < 0.7:
            self.case.play(f"live {node}")

    def _replace(self, node: int) -> None:
        """Restart a broker whose log directory was replaced by an empty one."""
        self.case.play(f"restart {node} replaced")
        self.versions[node] = 0
        self.replacements += 1
        if self.case.partition.replicas == (node,):  # no other replica has its records
            self.committed = 0
        else:
            assert node in self.case.partition.replaced
        self.case.settle()
        if self.dice.random() < 0.7:
            self.case.play(f"live {node}")

    def _check(self, before: PartitionImage) -> None:
        case, one = self.case, self.case.partition
        assert not set(one.replaced) & {*one.isr, *one.elr, one.last_known_leader}
        if one.is_recovering:  # the new leader takes over with what it has
            self.unclean += 1
            case.partition = one = one._replace(is_recovering=False)
            self.committed = min(self.committed, self.versions[one.leader])
        elif one.leader not in (NO_LEADER, before.leader):
            self.elections += 1
            assert self.versions[one.leader] >= self.committed, f"{one.leader} lacks committed records: {one}"
        fenced = [node for node in one.isr if node not in case.live]
        assert not fenced or (not one.min_isr and list(one.isr) == fenced), f"{fenced} are fenced: {one}"
        assert one.isr or one.elr or one.last_known_leader != NO_LEADER or one.replaced
        settled = case.partition
        case.settle()
        assert case.partition == settled

    def finish(self) -> None:
        """Let all brokers live again: the partition has a leader then."""
        for node in self.case.partition.replicas:
            if node in self.case.partition.offline:
                self.case.play(f"disk-back {node}")
            self.case.play(f"live {node}")
        before = self.case.partition
        if before.leader == NO_LEADER and before.replaced:  # the newest records were on a disk that is gone
            self.case.play("unclean")
            self._check(before)
        assert self.case.partition.leader != NO_LEADER, self.case.partition


def test_walks(dice_seed: int, pytestconfig: pytest.Config) -> None:
    dice = random.Random(dice_seed)
    elections = unclean_elections = replacements = 0
    for _ in range(_WALKS * pytestconfig.getoption("--soak")):
        walk = _Walk(dice)
        for _ in range(_STEPS):
            walk.step()
        walk.finish()
        elections += walk.elections
        unclean_elections += walk.unclean
        replacements += walk.replacements
    assert elections > 1_000
    assert unclean_elections > 50
    assert replacements > 200
