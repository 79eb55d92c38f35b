"""Reassignments of partitions (KIP-455): pure functions from the state of a partition to its next state.

    begun      the new replicas are assigned besides the old ones, and begin to follow
    completed  the replicas to be removed leave the assignment, once all others are in the ISR; the removed leader is replaced
    cancelled  the original replicas are the target again

    replicas   target, then the replicas to be removed
    adding     replicas that were not assigned before the reassignment began, also those that it does not want any more
    removing   replicas that are not in the target

Each step is one change of the partition's state, so whoever sees a state can make the next step: a reassignment goes on after
the end of any broker. The steps that change the leader are those of the controller; a request may make the others.
"""

from collections.abc import Sequence

from ottla.metadata.changes.elections import Acceptable, ElectionRules, restricted
from ottla.metadata.image import NO_LEADER, PartitionImage


def is_reassigned(partition: PartitionImage) -> bool:
    """Return True while a reassignment of a partition is in progress."""
    return bool(partition.adding or partition.removing)


def target_of(partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas that a partition will have after its reassignment; without one the present replicas."""
    return tuple(node for node in partition.replicas if node not in partition.removing)


def original_of(partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas that a partition had before its reassignment began; without one the present replicas."""
    return tuple(node for node in partition.replicas if node not in partition.adding)


def still_adding(partition: PartitionImage) -> tuple[int, ...]:
    """Return the new replicas in the target of a reassignment."""
    return tuple(node for node in partition.adding if node not in partition.removing)


def begun(partition: PartitionImage, target: Sequence[int]) -> PartitionImage:
    """Begin to reassign a partition, instead of a reassignment in progress. The same state is returned if nothing changes."""
    original = original_of(partition)
    removing = tuple(sorted(node for node in partition.replicas if node not in target))
    replicas = (*target, *removing)
    state = partition.with_replicas(replicas)._replace(
        adding=tuple(sorted(node for node in replicas if node not in original)), removing=removing
    )
    return partition if state == partition else state._replace(epoch=partition.epoch + 1)


def cancelled(partition: PartitionImage) -> PartitionImage:
    """Cancel the reassignment of a partition. Replicas that it has added are removed by `completed`."""
    return begun(partition, original_of(partition))


def keeps_records(partition: PartitionImage) -> bool:
    """Return True if a reassignment can be cancelled without an unclean election: an original replica is in the ISR."""
    return any(node in partition.isr for node in original_of(partition))


def completed(partition: PartitionImage, acceptable: Acceptable, rules: ElectionRules) -> PartitionImage | None:
    """Return the state after the reassignment of a partition; None while it cannot be completed.

    All of the target must be in the ISR. After a cancellation one replica is enough, as they were assigned all the time; an
    unclean election, where it is allowed, needs none.
    """
    if not is_reassigned(partition):
        return None
    target = target_of(partition)
    in_sync = [node for node in target if node in partition.isr]
    if set(partition.adding) == set(partition.removing):
        is_due = bool(in_sync) or rules.allows_unclean
    else:
        is_due = len(in_sync) == len(target)
        rules = rules._replace(allows_unclean=False)
    if not is_due:
        return None
    state = restricted(partition, target, acceptable, rules)
    return None if state.leader == NO_LEADER else state._replace(adding=(), removing=())
