"""History of a run as the applications saw it: invocations and results, independent of the implementation.

Values of records are unique, so that a record can be identified wherever it is read.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple


class PartitionKey(NamedTuple):
    """Partition of a topic of a cluster."""

    cluster: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.cluster}/{self.topic}-{self.partition}"


class Acknowledged(NamedTuple):
    """Record whose acks=all write was acknowledged; `number` is its place in the order in which its producer sent records."""

    value: str
    producer: str
    number: int
    partition: PartitionKey
    offset: int
    at_us: int


class Outcome(Enum):
    """Outcome of a transaction, as its producer knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Transaction:
    """Transaction of a producer with the values that it wrote.

    ended_us  time at which the producer knew the outcome; -1 before
    """

    def __init__(self, name: str, cluster: str, begun_us: int) -> None:
        self.name = name
        self.cluster = cluster
        self.begun_us = begun_us
        self.values: list[str] = []
        self.outcome = Outcome.UNKNOWN
        self.ended_us = -1


class Identity(NamedTuple):
    """Producer id and epoch that a producer got; `transactional_id` is empty without one."""

    cluster: str
    producer: str
    transactional_id: str
    producer_id: int
    epoch: int
    at_us: int


class Commit(NamedTuple):
    """Acknowledged commit of a group's offset; `is_reset` for one that an operator set."""

    group: str
    member: str
    partition: PartitionKey
    offset: int
    begun_us: int
    done_us: int
    is_reset: bool = False


class Received(NamedTuple):
    """Record that a member of a group got.

    at_us       time at which the member got it; of a share group: no later than the time at which it was requested
    deliveries  delivery count of a share group, else 0
    """

    group: str
    member: str
    partition: PartitionKey
    offset: int
    value: str
    at_us: int
    deliveries: int = 0


class Finished(NamedTuple):
    """Record of a share group whose acceptance or rejection was confirmed."""

    group: str
    partition: PartitionKey
    offset: int
    at_us: int


class Read(NamedTuple):
    """Record in the final reading of a partition by a read_committed consumer."""

    partition: PartitionKey
    offset: int
    value: str


class Step(NamedTuple):
    """Progress of a client: something that it wanted was done."""

    client: str
    at_us: int


class History:
    """Everything that the applications recorded.

    sent        value -> time at which it was given to a producer
    final_commits  (group, partition) -> committed offset at the end of the run
    ownership   (group, member) -> partitions that it owns at the end of the run
    errors      time, client and text of each error that an application has seen
    configs     (cluster, topic, config) -> values that it may have: the last one acknowledged, and those of unknown outcome
    blocked     records in the final reading that an open transaction holds back
    open_transactions  partition -> last stable offset at the end of the run, if a transaction is still open there
    topics      (cluster, topic) of admin clients -> True if it must exist at the end, False if not, None if unknown
    """

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        self.acknowledged: list[Acknowledged] = []
        self.transactions: list[Transaction] = []
        self.identities: list[Identity] = []
        self.commits: list[Commit] = []
        self.final_commits: dict[tuple[str, PartitionKey], int] = {}
        self.received: list[Received] = []
        self.share_received: list[Received] = []
        self.finished: list[Finished] = []
        self.reads: list[Read] = []
        self.blocked: list[Read] = []
        self.open_transactions: dict[PartitionKey, int] = {}
        self.steps: list[Step] = []
        self.errors: list[tuple[int, str, str]] = []
        self.ownership: dict[tuple[str, str], Sequence[PartitionKey]] = {}
        self.subscribed: dict[str, Sequence[PartitionKey]] = {}
        self.topics: dict[tuple[str, str], bool | None] = {}
        self.configs: dict[tuple[str, str, str], list[str]] = {}
