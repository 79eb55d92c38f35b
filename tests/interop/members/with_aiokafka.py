"""A member with aiokafka."""

import asyncio

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import CommitFailedError, RebalanceInProgressError

from tests.interop.members.telling import Teller, task

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Member(ConsumerRebalanceListener):  # type: ignore[misc]  # the package has no types
    """A consumer that commits what it has told."""

    def __init__(self) -> None:
        arguments = task()
        self.topic = arguments.topic
        self.teller = Teller()
        self.is_dirty = False
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=arguments.bootstrap,
            group_id=arguments.group,
            group_instance_id=arguments.instance,
            partition_assignment_strategy=(ASSIGNORS[arguments.settings["assignor"]],),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
            metadata_max_age_ms=500,
        )

    async def run(self) -> None:
        """Until told to stop."""
        self.consumer.subscribe([self.topic], listener=self)
        await self.consumer.start()
        while not self.teller.stopped.is_set():
            for records in (await self.consumer.getmany(timeout_ms=50)).values():
                self.teller.read([int(record.value) for record in records])
                self.is_dirty = True
            await self.commit()
            self.teller.has(part.partition for part in self.consumer.assignment())
        await self.consumer.stop()

    async def commit(self) -> None:
        """Commit the positions; a commit that fails in the middle of a rebalance is repeated a little later."""
        if self.is_dirty:
            self.is_dirty = False
            try:
                await self.consumer.commit()
            except (RebalanceInProgressError, CommitFailedError):
                self.is_dirty = True

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """The last moment to commit."""
        await self.commit()
        self.teller.has(part.partition for part in self.consumer.assignment() - set(revoked))

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """They are told in `run`."""


async def main() -> None:
    """The consumer wants a loop that runs when it is made."""
    await Member().run()


if __name__ == "__main__":
    asyncio.run(main())
