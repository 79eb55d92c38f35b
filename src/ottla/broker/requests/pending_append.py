"""Append of a producer's batch that is still being validated: it is large, or has schemas that must be looked up."""

from typing import NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.coordination.verification import VerificationGuard
from ottla.log.log import Unfinished
from ottla.protocol.errors import NONE, NOT_ENOUGH_REPLICAS, NOT_LEADER_OR_FOLLOWER
from ottla.protocol.messages.produce import PartitionProduceResponse
from ottla.replication.partition import Partition


class PendingAppend(NamedTuple):
    """Append of a batch, as it began.

    leader_epoch  that in which the batch is stamped
    answer        its row of the response
    producer      id and epoch of the producer of a transactional batch
    guard         state of its transaction
    """

    partition: Partition
    leader_epoch: int
    unfinished: Unfinished
    answer: PartitionProduceResponse
    producer: tuple[int, int] | None
    guard: VerificationGuard | None

    def refusal(self, broker: Broker, acks: int) -> int:
        """Return why the batch must not be appended any more, NONE if it may be."""
        partition = self.partition
        leader = broker.replicas.leader(partition.topic, partition.index)
        if isinstance(leader, int):
            return leader
        if leader is not partition or partition.leader_epoch != self.leader_epoch:  # the batch has the old epoch
            return NOT_LEADER_OR_FOLLOWER
        if self.producer is not None and self.guard != VerificationGuard.of(partition, self.producer[0]):
            # It would be in a transaction that nobody ends. The client sends it again, and it is verified again.
            return NOT_ENOUGH_REPLICAS
        return NOT_ENOUGH_REPLICAS if acks == -1 and partition.lacks_replicas else NONE
