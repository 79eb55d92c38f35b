"""A member with kafka-python."""

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings(
        "ignore", r"\w+_text is deprecated", DeprecationWarning
    )  # kafka-python reads its schemas so
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import CommitFailedError, KafkaTimeoutError, RebalanceInProgressError

from tests.interop.members.telling import Teller, task

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Member(ConsumerRebalanceListener):  # type: ignore[misc]  # the package has no types
    """A consumer that commits what it has told."""

    def __init__(self) -> None:
        arguments = task()
        self.topic = arguments.topic
        self.teller = Teller()
        self.is_dirty = False
        self.consumer = KafkaConsumer(
            bootstrap_servers=arguments.bootstrap,
            group_id=arguments.group,
            group_instance_id=arguments.instance,
            partition_assignment_strategy=[ASSIGNORS[arguments.settings["assignor"]]],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
            max_poll_interval_ms=15_000,  # the rebalance timeout: the group goes on without a member that does not join again
            fetch_max_wait_ms=50,
            metadata_max_age_ms=500,
        )

    def run(self) -> None:
        """Until told to stop."""
        self.consumer.subscribe([self.topic], listener=self)
        while not self.teller.stopped.is_set():
            # A poll that ends between the answers to JoinGroup and SyncGroup may lose the assignment (3.0.12).
            timeout_ms = 50 if self.consumer.assignment() else 20_000
            for records in self.consumer.poll(timeout_ms=timeout_ms).values():
                self.teller.read([int(record.value) for record in records])
                self.is_dirty = True
            self.commit()
            self.teller.has(part.partition for part in self.consumer.assignment())
        self.consumer.close()

    def commit(self) -> None:
        """Commit the positions; a commit that fails in the middle of a rebalance is repeated a little later."""
        if self.is_dirty:
            try:
                self.consumer.commit(timeout_ms=1000)
            except (CommitFailedError, KafkaTimeoutError, RebalanceInProgressError):
                return
            self.is_dirty = False

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Report what remains; `poll`'s records are committed already, and a commit here would hold up the network thread."""
        self.teller.has(part.partition for part in self.consumer.assignment() - set(revoked))

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """They are told in `run`."""


if __name__ == "__main__":
    Member().run()
