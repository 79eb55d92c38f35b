"""A transaction whose end is decided, and whose marker cannot be written: the leader of its partition was killed."""

from tests.conformance.transactions import TransactionalProducer

from .brokers import Brokers
from .conftest import Cluster
from .coordinators import TRANSACTION, coordinated_by


def test_partitions_are_added_by_no_producer_while_a_transaction_ends(brokers: Brokers) -> None:
    """The coordinator looks at the state first: another producer id may be the next one of the same producer (KIP-890)."""
    cluster = Cluster(brokers)
    topic, lost = cluster.topic([1]), cluster.topic([3])
    producer = TransactionalProducer(cluster[1], transactional_id=coordinated_by(cluster, TRANSACTION, 1))
    producer.add(lost, 0)
    others = {"producer_id": producer.producer_id + 1000}, {"epoch_by": -1}
    brokers.kill(3)
    try:
        assert producer.ask_end(commit=False, version=4)[0] == "NONE"
        # Apache Kafka soon gives up such a marker.
        codes = [producer.ask_add({topic.name: [0]}, 3, **who)[topic.name, 0] for who in others]
    finally:
        cluster.start(3)
        cluster.close()
    assert codes == ["CONCURRENT_TRANSACTIONS"] * 2
