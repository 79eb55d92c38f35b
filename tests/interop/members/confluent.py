"""A member with confluent-kafka (librdkafka), of either protocol."""

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.interop.members.telling import Teller, task

LATER = (
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,  # librdkafka has rejoined, and does not know it yet
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._NO_OFFSET,
)


class Member:
    """A consumer that commits what it has told."""

    def __init__(self) -> None:
        self.task = task()
        self.teller = Teller()
        self.numbers: list[int] = []
        self.is_dirty = False
        instance = {} if self.task.instance is None else {"group.instance.id": self.task.instance}
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": self.task.bootstrap,
            "group.id": self.task.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
        self.consumer = Consumer(settings | instance | self.task.settings)

    def run(self) -> None:
        """Until told to stop."""
        self.consumer.subscribe([self.task.topic], on_revoke=self.revoked)
        while not self.teller.stopped.is_set():
            message = self.consumer.poll(0.05)
            if message is not None and message.error() is None:
                value = message.value()
                assert value is not None
                self.numbers.append(int(value))
                self.is_dirty = True
            if message is None or len(self.numbers) >= 50:
                self.commit()
            self.teller.has(part.partition for part in self.consumer.assignment())
        self.commit()
        self.consumer.close()

    def commit(self) -> None:
        """Tell and commit; what cannot be committed in the middle of a rebalance is committed a little later."""
        self.teller.read(self.numbers)
        self.numbers = []
        if self.is_dirty:
            try:
                self.consumer.commit(asynchronous=False)
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if error.code() not in LATER:
                    raise
            else:
                self.is_dirty = False

    def revoked(self, _: Consumer, lost: list[TopicPartition]) -> None:
        """The last moment to commit."""
        self.commit()
        kept = {part.partition for part in self.consumer.assignment()} - {part.partition for part in lost}
        self.teller.has(kept)


if __name__ == "__main__":
    Member().run()
