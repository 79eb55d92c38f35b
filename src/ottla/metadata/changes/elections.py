"""Elections of partition leaders: pure functions from the state of a partition to its next state.

    online      a leader is needed: it failed, or the partition is new, or a replica is back
    preferred   the first assigned replica should lead (KIP-183)
    unclean     any replica may lead, even if records are lost (KIP-460)
    without     a broker was fenced, or a log directory failed: the replica leaves the ISR
    damaged     a replica cannot read its log: it leaves the ISR, and may cut the log in a new leader epoch
    restarted   a broker has started again: it never leads in its old leader epoch, and after an unclean stop it leaves the ISR
    replaced    a broker has started again without the log directory that its replica was assigned to (KIP-858)
    restricted  replicas leave the assignment

A replica is acceptable as leader if its broker is live, does not stop, and its log directory is online. With eligible leader
replicas (KIP-966) a replica that leaves the ISR while it is below min.insync.replicas is remembered in the ELR: it has
everything that was committed, and may be elected when the ISR is empty. Every function returns None if nothing changes.

A replica whose assigned log directory is gone has nothing, whatever the state says of it: it leaves ISR and ELR and is no last
known leader, also if no other replica is left. Then only an unclean election gives the partition a leader, and it chooses a
replica that has kept its log before one that has begun again.

`PartitionImage.min_isr` is the min.insync.replicas in force; 0 means that the partition has no ELR. It changes with
`with_min_isr` only, in a state that the leader writes: it commits by the value that the ELR is computed with, whatever the
config says meanwhile.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.metadata.image import NO_LEADER, UNASSIGNED, Image, PartitionImage
from ottla.metadata.image.stored import stored


class ElectionRules(NamedTuple):
    """Settings for elections of a partition.

    min_isr         `PartitionImage.min_isr` that the partition should have: see `metadata/plans/eligibility.py`
    allows_unclean  unclean.leader.election.enable
    """

    min_isr: int
    allows_unclean: bool = False


Acceptable = Callable[[int], bool]
"""Returns True for a node that may lead."""


class _Members(NamedTuple):
    """Replicas from which a leader may be elected."""

    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_leader: int


def online(partition: PartitionImage, acceptable: Acceptable, rules: ElectionRules) -> PartitionImage | None:
    """Elect a leader if the current one is not valid."""
    members = _Members(partition.isr, partition.elr, partition.last_known_leader)
    return _elected(partition, members, acceptable, allows_unclean=rules.allows_unclean)


def preferred(partition: PartitionImage, acceptable: Acceptable) -> PartitionImage | None:
    """Elect the preferred leader if it is in sync; otherwise only replace a leader that is not valid."""
    members = _Members(partition.isr, partition.elr, partition.last_known_leader)
    first = partition.replicas[0]
    if _is_valid(first, members, acceptable):
        return _with_leader(partition, members, first, is_unclean=False)
    return _elected(partition, members, acceptable, allows_unclean=False)


def unclean(partition: PartitionImage, acceptable: Acceptable) -> PartitionImage | None:
    """Elect any acceptable replica if no replica in sync is acceptable."""
    members = _Members(partition.isr, partition.elr, partition.last_known_leader)
    return _elected(partition, members, acceptable, allows_unclean=True)


def without(
    partition: PartitionImage, node: int, acceptable: Acceptable, rules: ElectionRules, *, has_records: bool = True
) -> PartitionImage | None:
    """Remove a replica from the ISR, and elect another leader if it led. The last member stays, unless it goes to the ELR.

    has_records  False: the replica may have lost records, so that it leaves the ELR too
    """
    isr = tuple(member for member in partition.isr if member != node)
    members = _reduced(partition, isr, () if has_records else (node,))
    return _elected(partition, members, acceptable, allows_unclean=rules.allows_unclean)


def damaged(partition: PartitionImage, node: int, acceptable: Acceptable) -> PartitionImage | None:
    """Remove a replica that cannot read its log from ISR and ELR, and begin a new leader epoch even if the leader stays.

    In the old epoch the leader knows a position of the replica that the replica is about to lose, and might add it to the ISR.
    None if no other replica in sync may lead: then only this log may have what was committed.
    """
    isr = tuple(member for member in partition.isr if member != node)
    members = _reduced(partition, isr, (node,))
    if not any(_is_valid(other, members, acceptable) for other in partition.replicas if other != node):
        return None
    state = _elected(partition, members, acceptable, allows_unclean=False) or partition
    return state._replace(leader_epoch=partition.leader_epoch + 1, epoch=partition.epoch + 1)


def restarted(
    partition: PartitionImage, node: int, acceptable: Acceptable, *, was_clean: bool
) -> PartitionImage | None:
    """Handle a new incarnation of a broker, before it is live.

    If the broker led the partition, and no other replica can, it leads again, in a new leader epoch: in the old one it might
    assign an offset twice, to different records.
    """
    members = _Members(partition.isr, partition.elr, partition.last_known_leader)
    if partition.replicas == (node,) and partition.leader == node:  # whatever it has lost, no other replica has it
        return _changed(partition, members, node, partition.leader_epoch + 1)
    if not was_clean:
        isr = tuple(member for member in partition.isr if member != node)
        members = _reduced(partition, isr, (node,))
    if partition.leader != node:
        return _changed(partition, members, partition.leader, partition.leader_epoch)
    result = _elected(partition, members, acceptable, allows_unclean=False, keeps_leader=False)
    if result is not None and result.leader != NO_LEADER:
        return result
    if node in members.isr:
        return _changed(partition, members, node, partition.leader_epoch + 1)
    return result


def replaced(
    partition: PartitionImage, node: int, acceptable: Acceptable, directory_id: bytes = UNASSIGNED
) -> PartitionImage | None:
    """Handle a new incarnation of a broker whose log of the partition is gone with its directory, before it is live.

    directory_id  the log directory in which the replica begins again, if that is certain

    None for a single replica, whose state stays: no other replica could have its records.
    """
    if partition.replicas == (node,):
        return None
    members = _reduced(partition, tuple(member for member in partition.isr if member != node), (node,))
    # The last member of an ISR stays in it without an ELR, and is remembered with one.
    members = _Members(
        tuple(member for member in members.isr if member != node),
        members.elr,
        NO_LEADER if members.last_known_leader == node else members.last_known_leader,
    )
    assigned = partition.assigned(node, directory_id)
    state = assigned._replace(replaced=tuple(dict.fromkeys((*partition.replaced, node))))
    if partition.leader == node:
        state = _elected(state, members, acceptable, allows_unclean=False, keeps_leader=False) or state
    else:
        state = _changed(state, members, partition.leader, partition.leader_epoch) or state
    return state._replace(epoch=partition.epoch + 1)


def restricted(
    partition: PartitionImage, replicas: tuple[int, ...], acceptable: Acceptable, rules: ElectionRules
) -> PartitionImage:
    """Restrict the assignment to some of its replicas, in this order, and elect another leader if the leader is not among them.

    A new leader epoch begins if a replica leaves: its fetches count no more (KIP-320).
    """
    isr = tuple(node for node in partition.isr if node in replicas)
    last_known = partition.last_known_leader if partition.last_known_leader in replicas else NO_LEADER
    kept = partition.with_replicas(replicas)._replace(
        isr=isr, elr=tuple(node for node in partition.elr if node in replicas), last_known_leader=last_known
    )
    members = _reduced(kept, isr, ())
    state = _elected(kept, members, acceptable, allows_unclean=rules.allows_unclean) or kept
    begins_epoch = state.leader != partition.leader or len(replicas) < len(partition.replicas)
    return state._replace(leader_epoch=partition.leader_epoch + begins_epoch, epoch=partition.epoch + 1)


def with_isr(partition: PartitionImage, isr: tuple[int, ...]) -> PartitionImage:
    """Return the state with the ISR that its leader proposes, of which the leader is a member. The epoch stays."""
    members = _reduced(partition, isr, ())
    return partition._replace(
        isr=members.isr,
        elr=members.elr,
        last_known_leader=members.last_known_leader,
        replaced=tuple(node for node in partition.replaced if node not in members.isr),
    )


def with_min_isr(partition: PartitionImage, min_isr: int) -> PartitionImage:
    """Return the state with another min.insync.replicas in force, 0 for a partition without ELR. The epoch stays.

    Only for a partition with a leader. Its ELR is emptied, because it was computed with the earlier value. Without a leader
    nothing is committed, and the ELR may be all that says which replicas have the records: it stays until one of them leads.
    (Apache Kafka 4.4 empties it at once, and may then elect no leader although all replicas are back.)
    """
    return partition if min_isr == partition.min_isr else partition._replace(elr=(), min_isr=min_isr)


def _reduced(partition: PartitionImage, isr: tuple[int, ...], unclean_nodes: Sequence[int]) -> _Members:
    """Return the members with another ISR; `unclean_nodes` may have lost records, and leave the ELR."""
    if not partition.min_isr:
        return _Members(isr or partition.isr, (), NO_LEADER)
    if len(isr) >= min(partition.min_isr, len(partition.replicas)):
        return _Members(isr, (), NO_LEADER)
    candidates = dict.fromkeys((*partition.elr, *partition.isr))
    elr = tuple(node for node in candidates if node not in isr and node not in unclean_nodes)
    last_known = partition.last_known_leader
    if partition.isr and not isr:
        # Remembered also while the ELR has members: they may all leave it later, when there is no leader to remember.
        last_known = partition.leader if partition.leader != NO_LEADER else partition.isr[0]
    return _Members(isr, elr, last_known)


def _is_valid(node: int, members: _Members, acceptable: Acceptable) -> bool:
    in_sync = node in (members.isr or members.elr)
    return in_sync and acceptable(node)


def _elected(
    partition: PartitionImage,
    members: _Members,
    acceptable: Acceptable,
    *,
    allows_unclean: bool,
    keeps_leader: bool = True,
) -> PartitionImage | None:
    """Return the partition with its members, and with its leader if that one is valid, otherwise with another one."""
    order = ((partition.leader,) if keeps_leader else ()) + partition.replicas
    for node in order:
        if _is_valid(node, members, acceptable):
            return _with_leader(partition, members, node, is_unclean=False)
    last_known = members.last_known_leader
    if not members.isr and not members.elr and last_known != NO_LEADER and acceptable(last_known):
        return _with_leader(partition, members, last_known, is_unclean=True)
    if allows_unclean:
        for node in sorted(partition.replicas, key=partition.replaced.__contains__):
            if acceptable(node):
                return _with_leader(partition, members, node, is_unclean=True)
    return _with_leader(partition, members, NO_LEADER, is_unclean=False)


def _with_leader(
    partition: PartitionImage, members: _Members, leader: int, *, is_unclean: bool
) -> PartitionImage | None:
    epoch = partition.leader_epoch + (leader != partition.leader)
    if is_unclean:  # the new leader may lack records: no other replica is in sync with it
        return _changed(partition, _Members((leader,), (), NO_LEADER), leader, epoch, is_recovering=True)
    if leader != NO_LEADER and leader not in members.isr:  # from the ELR
        elr = tuple(node for node in members.elr if node != leader)
        members = _Members((leader,), elr, NO_LEADER)
        if len(members.isr) >= min(partition.min_isr, len(partition.replicas)):
            members = members._replace(elr=())
    return _changed(partition, members, leader, epoch)


def _changed(
    partition: PartitionImage, members: _Members, leader: int, leader_epoch: int, *, is_recovering: bool = False
) -> PartitionImage | None:
    result = partition._replace(
        isr=members.isr,
        elr=members.elr,
        last_known_leader=members.last_known_leader,
        leader=leader,
        leader_epoch=leader_epoch,
        replaced=tuple(node for node in partition.replaced if node not in members.isr),
        is_recovering=partition.is_recovering or is_recovering,
    )
    return None if result == partition else result._replace(epoch=partition.epoch + 1)


def restarted_alone(image: Image, node: int) -> dict[str, bytes]:
    """Return the keys to write when a single broker starts: all of its partitions begin new epochs."""
    put: dict[str, bytes] = {}
    for topic in image.topics.values():
        partitions = tuple(
            partition._replace(leader_epoch=partition.leader_epoch + 1, epoch=partition.epoch + 1)
            if partition.leader == node
            else partition
            for partition in topic.partitions
        )
        if partitions != topic.partitions:
            put |= stored(topic._replace(partitions=partitions))
    return put
