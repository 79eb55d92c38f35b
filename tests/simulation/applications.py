"""Applications of the workload: producers, transactions, consumer groups, share groups, an admin client."""

from collections.abc import Callable, Mapping
from typing import Final

from ottla.client.admin.configs import ConfigChange, ConfigResource, ResourceType
from ottla.client.admin.core import AdminCore
from ottla.client.admin.topics import NewPartitions, NewTopic
from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.rebalance import Listeners
from ottla.client.core import Core
from ottla.client.errors import KafkaError, RequestTimedOut
from ottla.client.producer.accumulator import ANY
from ottla.client.producer.closed import Delivered
from ottla.client.share.consumer import ShareConsumerCore
from ottla.client.share.delivery import AcknowledgeType
from ottla.client.topics import LATEST, TopicPartition
from ottla.protocol.errors import GROUP_ID_NOT_FOUND, TOPIC_ALREADY_EXISTS

from .clients import Application, ClientProcess, Polling
from .history import Acknowledged, Commit, Finished, Identity, Outcome, Received, Transaction

PLAIN: Final = "plain"
LEDGER: Final = "ledger"
DERIVED: Final = "derived"
HASTY: Final = "hasty"
"""Topic with unclean.leader.election.enable=true."""
TOPICS: Final[Mapping[str, int]] = {PLAIN: 3, LEDGER: 2, DERIVED: 2, HASTY: 2}
_UNCLEAN: Final = {"unclean.leader.election.enable": "true"}
SHARE_GROUP: Final = "sharing"
TRANSFORM_GROUP: Final = "transforming"
GROUPS: Final = (TRANSFORM_GROUP, "group-classic", "group-consumer")
DERIVED_PREFIX: Final = "derived:"
_COMMIT_ATTEMPTS: Final = 8
_SOONEST_RETRY_US: Final = 80_000
_LIFE_US: Final = 20_000_000


class Writer(Application):
    """Application with a producer: gives out values and records their outcomes."""

    def __init__(self, process: ClientProcess, **configs: str) -> None:
        super().__init__(process)
        self.producer = process.producer(**configs)
        self._number = 0
        self._identity = (-1, -1)
        self._transactional_id = configs.get("transactional_id", "")

    @property
    def main(self) -> Core:
        return self.producer.core

    @property
    def records_acknowledgements(self) -> bool:
        """True if an acknowledged record must not be lost."""
        return True

    async def write(self, topic: str, value: str, key: str, note: Callable[[KafkaError | None], None]) -> None:
        """Append a record. Raises KafkaError if that is not possible."""
        process = self.process
        number = self._number
        self._number += 1
        process.history.sent[value] = process.now_us

        def delivered(error: KafkaError | None, where: Delivered | None) -> None:
            self.note_identity()
            if error is None and where is not None:
                process.world.count("records acknowledged")
                partition = process.key(where.topic, where.partition)
                process.world.trace("acknowledged", process.name, f"{value} {partition} {where.offset}".encode())
                if self.records_acknowledgements:
                    process.history.acknowledged.append(
                        Acknowledged(value, process.name, number, partition, where.offset, process.now_us)
                    )
            elif error is not None:
                process.note_error(f"record {value}", error)
            note(error)

        record = (topic, ANY, process.clock.wall_ms(), key.encode(), value.encode(), None, delivered)
        if not self.producer.append(*record):
            await self.producer.append_later(*record)

    def note_identity(self) -> None:
        """Record the producer id and epoch, if they have changed."""
        identity = self.producer.identity
        if identity != self._identity and identity[0] >= 0:
            self._identity = identity
            process = self.process
            process.history.identities.append(
                Identity(process.cluster.name, process.name, self._transactional_id, *identity, process.now_us)
            )


class PlainProducer(Writer):
    """Idempotent producer with acks=all."""

    def __init__(self, process: ClientProcess) -> None:
        super().__init__(process, linger_ms="5")

    async def run(self) -> None:
        process, number = self.process, 0

        def note(error: KafkaError | None) -> None:
            if error is None:
                process.step()

        while not process.is_stopping:
            for _ in range(process.chance.randint(1, 4)):
                number += 1
                try:
                    await self.write(PLAIN, f"{process.name}#{number}", f"k{process.chance.randrange(9)}", note)
                except KafkaError as error:
                    process.note_error("append", error)
                    if not error.retriable:
                        raise
            await self.main.scheduler.sleep(process.chance.randint(60, 250))
        await self.producer.flush(30_000)


class HastyProducer(Writer):
    """Producer that writes to a topic with unclean elections, in every second life with acks=1: then nothing is promised."""

    def __init__(self, process: ClientProcess) -> None:
        self._is_certain = process.life.number % 2 == 1
        super().__init__(process, **({} if self._is_certain else {"acks": "1", "enable_idempotence": "false"}))

    @property
    def records_acknowledgements(self) -> bool:
        """See `Writer`."""
        return self._is_certain

    async def run(self) -> None:
        process, number = self.process, 0

        def note(error: KafkaError | None) -> None:
            if error is None:
                process.step()

        begun_us = process.now_us
        while not process.is_stopping and process.now_us - begun_us < _LIFE_US:
            number += 1
            try:
                await self.write(HASTY, f"{process.name}#{number}", f"k{process.chance.randrange(9)}", note)
            except KafkaError as error:
                process.note_error("append", error)
                if not error.retriable:
                    raise
            await self.main.scheduler.sleep(process.chance.randint(60, 400))
        await self.producer.flush(30_000)
        if not process.is_stopping:
            raise RequestTimedOut("begin again with other acks")


class TransactionWriter(Writer):
    """Producer of transactions on several partitions; some are aborted."""

    def __init__(self, process: ClientProcess) -> None:
        name = f"transactions-{process.life.host.name}"
        super().__init__(process, transactional_id=name, transaction_timeout_ms="10000")

    async def run(self) -> None:
        process, number = self.process, 0
        transactions = self.producer.transactional()
        await transactions.init(20_000)
        self.note_identity()
        while not process.is_stopping:
            transactions.begin()
            number += 1
            transaction = Transaction(f"{process.name}/t{number}", process.cluster.name, process.now_us)
            process.history.transactions.append(transaction)
            for place in range(process.chance.randint(1, 5)):
                value = f"{transaction.name}#{place}"
                transaction.values.append(value)
                await self.write(LEDGER, value, f"k{process.chance.randrange(9)}", lambda error: None)
            await end(self, transaction, commit=process.chance.random() < 0.8)
            self.note_identity()
            await self.main.scheduler.sleep(process.chance.randint(50, 400))


async def end(writer: Writer, transaction: Transaction, *, commit: bool) -> None:
    """Commit or abort a transaction and record the outcome. Raises KafkaError if it is unknown."""
    process, transactions = writer.process, writer.producer.transactional()
    if commit:
        for _ in range(_COMMIT_ATTEMPTS):
            try:
                await transactions.commit(5_000)
            except RequestTimedOut as error:
                process.note_error(f"commit {transaction.name}", error)
            except KafkaError as error:
                process.note_error(f"commit {transaction.name}", error)
                break
            else:
                transaction.outcome = Outcome.COMMITTED
                transaction.ended_us = process.now_us
                process.tell(f"committed {transaction.name}")
                process.step()
                return
        else:
            raise RequestTimedOut(f"commit {transaction.name}: unknown outcome")
    for _ in range(_COMMIT_ATTEMPTS):
        try:
            await transactions.abort(5_000)
        except RequestTimedOut as error:
            process.note_error(f"abort {transaction.name}", error)
        else:
            transaction.outcome = Outcome.ABORTED
            transaction.ended_us = process.now_us
            process.tell(f"aborted {transaction.name}")
            process.step()
            return
    raise RequestTimedOut(f"abort {transaction.name}: unknown outcome")


class Transformer(Writer):
    """Consumes a topic and writes a record for each of its records, with the offsets in the same transaction."""

    def __init__(self, process: ClientProcess) -> None:
        name = f"transformer-{process.life.host.name}"
        super().__init__(process, transactional_id=name, transaction_timeout_ms="10000")
        self._consumer = ConsumerCore(
            process.core(
                group_id=TRANSFORM_GROUP,
                group_protocol="consumer",
                enable_auto_commit="false",
                auto_offset_reset="earliest",
                max_poll_interval_ms="15000",
                isolation_level="read_committed",
            )
        )

    async def run(self) -> None:
        process, number = self.process, 0
        transactions = self.producer.transactional()
        await transactions.init(20_000)
        self.note_identity()
        self._consumer.subscribe([PLAIN], None, Listeners())
        polling = Polling(self._consumer)
        while True:
            records = await polling.records(1_000, 40)
            if not records:
                continue
            number += 1
            transaction = Transaction(f"{process.name}/t{number}", process.cluster.name, process.now_us)
            process.history.transactions.append(transaction)
            transactions.begin()
            ends: dict[TopicPartition, int] = {}
            for record in records:
                value = f"{DERIVED_PREFIX}{(record.value or b'').decode()}"
                transaction.values.append(value)
                ends[TopicPartition(record.origin.topic, record.origin.partition)] = record.offset + 1
                await self.write(DERIVED, value, f"k{process.chance.randrange(9)}", lambda error: None)
            begun_us = process.now_us
            metadata = self._consumer.group_metadata
            await self.producer.send_offsets(ends, metadata, 5_000)
            await end(self, transaction, commit=True)
            self.note_identity()
            if transaction.outcome is not Outcome.COMMITTED:
                raise RequestTimedOut("the transaction was aborted: read again from the committed offsets")
            for partition, offset in ends.items():
                process.history.commits.append(
                    Commit(TRANSFORM_GROUP, process.name, process.key(*partition), offset, begun_us, process.now_us)
                )

    def at_rest(self) -> None:
        note_ownership(self.process, TRANSFORM_GROUP, self._consumer)


def note_ownership(process: ClientProcess, group: str, consumer: ConsumerCore) -> None:
    """Record the partitions that a member owns at the end."""
    name = f"{process.cluster.name}/{group}"
    process.history.ownership[name, process.name] = [process.key(*partition) for partition in consumer.assignment]
    process.history.subscribed[name] = [process.key(PLAIN, number) for number in range(TOPICS[PLAIN])]


class GroupMember(Application):
    """Member of a consumer group that commits the offsets of what it has processed."""

    def __init__(self, process: ClientProcess, protocol: str) -> None:
        super().__init__(process)
        self._group = f"group-{protocol}"
        session = {"session_timeout_ms": "8000", "heartbeat_interval_ms": "2000"} if protocol == "classic" else {}
        self._core = process.core(
            group_id=self._group,
            group_protocol=protocol,
            enable_auto_commit="false",
            auto_offset_reset="earliest",
            max_poll_interval_ms="15000",
            **session,
        )
        self._consumer = ConsumerCore(self._core)

    @property
    def main(self) -> Core:
        return self._core

    async def run(self) -> None:
        process, consumer = self.process, self._consumer
        consumer.subscribe([PLAIN], None, Listeners())
        polling = Polling(consumer)
        commit_us = process.now_us
        while True:
            try:
                for record in await polling.records(1_000):
                    process.history.received.append(
                        Received(
                            self._group,
                            process.name,
                            process.key(record.origin.topic, record.origin.partition),
                            record.offset,
                            (record.value or b"").decode(),
                            process.now_us,
                        )
                    )
                    process.step()
                if process.now_us - commit_us >= 1_000_000:
                    commit_us = process.now_us
                    await self._commit()
            except KafkaError as error:
                process.note_error("poll", error)
                if (
                    error.code == GROUP_ID_NOT_FOUND
                ):  # lost with the records of the coordinator: only a new member is accepted
                    raise
                await self._core.scheduler.sleep(200)

    async def _commit(self) -> None:
        process = self.process
        begun_us = process.now_us
        offsets = await self._consumer.commit(None, 5_000)
        for partition, committed in sorted(offsets.items()):
            key = process.key(*partition)
            process.history.commits.append(
                Commit(self._group, process.name, key, committed.offset, begun_us, process.now_us)
            )
        process.world.count("offset commits")
        process.world.trace("commit", process.name, repr(sorted(offsets.items())).encode())

    def at_rest(self) -> None:
        note_ownership(self.process, self._group, self._consumer)


class ShareMember(Application):
    """Member of a share group that accepts most records, and releases or rejects some."""

    def __init__(self, process: ClientProcess) -> None:
        super().__init__(process)
        self._core = process.core(group_id=SHARE_GROUP, share_acknowledgement_mode="explicit", max_poll_records="30")
        self._consumer = ShareConsumerCore(self._core)
        self._consumer.callback = self._acknowledged
        self._final: set[tuple[TopicPartition, int]] = set()

    @property
    def main(self) -> Core:
        return self._core

    def _acknowledged(self, offsets: Mapping[TopicPartition, set[int]], error: KafkaError | None) -> None:
        process = self.process
        for partition, numbers in offsets.items():
            for offset in sorted(numbers):
                if (partition, offset) in self._final and error is None:
                    key = process.key(*partition)
                    process.history.finished.append(Finished(SHARE_GROUP, key, offset, process.now_us))
                    process.step()
        if error is not None:
            process.note_error("acknowledge", error)

    async def run(self) -> None:
        process = self.process
        self._consumer.subscribe([PLAIN])
        previous_us = begun_us = process.now_us
        while True:
            # A paused client gets late what it was sent before. A fetch is sent during a poll, or the one before.
            previous_us, begun_us = begun_us, process.now_us
            try:
                for record in await self._consumer.poll(1_000):
                    origin = record.origin
                    key = process.key(origin.topic, origin.partition)
                    value = (record.value or b"").decode()
                    process.world.count("share deliveries")
                    process.history.share_received.append(
                        Received(
                            SHARE_GROUP, process.name, key, record.offset, value, previous_us, origin.delivery_count
                        )
                    )
                    kind = process.chance.choices(
                        (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT), (90, 8, 2)
                    )[0]
                    place = (TopicPartition(origin.topic, origin.partition), record.offset)
                    if kind is AcknowledgeType.RELEASE:
                        self._final.discard(place)
                    else:
                        self._final.add(place)
                    self._consumer.acknowledge(record, kind)
                self._consumer.commit_soon()
            except KafkaError as error:
                process.note_error("poll", error)
                if (
                    error.code == GROUP_ID_NOT_FOUND
                ):  # lost with the records of the coordinator: only a new member is accepted
                    raise
                await self._core.scheduler.sleep(200)


class AdminApplication(Application):
    """Application with an admin client."""

    def __init__(self, process: ClientProcess) -> None:
        super().__init__(process)
        self._core = process.core()
        self._admin = AdminCore(self._core)

    @property
    def main(self) -> Core:
        return self._core


class Administrator(AdminApplication):
    """Admin client that creates, changes and deletes its own topics."""

    async def run(self) -> None:
        process, number = self.process, 0
        while not process.is_stopping:
            number += 1
            await self._one_topic(f"scratch-{process.name.replace('.', '-')}-{number}")
            await self._core.scheduler.sleep(process.chance.randint(300, 2_000))

    async def _one_topic(self, name: str) -> None:
        process, admin, topics = self.process, self._admin, self.process.history.topics
        key = (process.cluster.name, name)
        topics[key] = None
        begun_us = process.now_us
        try:
            (await admin.create_topics([NewTopic(name, process.chance.randint(1, 4))], timeout=10)).check()
            # A client that got no answer creates the topic again at another broker, and the first broker may carry its
            # request out later, even after the topic was deleted: as in Kafka.
            was_repeated = process.now_us - begun_us >= _SOONEST_RETRY_US
            topics[key] = True
            process.step()
            change = ConfigChange("retention.ms", str(process.chance.randint(1, 9) * 3_600_000))
            resource = ConfigResource(ResourceType.TOPIC, name)
            (await admin.incremental_alter_configs({resource: [change]}, timeout=10)).check()
            (await admin.create_partitions([NewPartitions(name, 5)], timeout=10)).check()
            ends = {TopicPartition(name, partition): LATEST for partition in range(5)}
            (await admin.list_offsets(ends, timeout=10)).check()
            process.step()
            if process.chance.random() < 0.7:
                topics[key] = None
                (await admin.delete_topics([name], timeout=10)).check()
                topics[key] = None if was_repeated else False
                process.step()
        except KafkaError as error:
            process.note_error(f"topic {name}", error)


class Configurator(Application):
    """Admin client that changes a config of a topic which it shares with others; each client has its own config."""

    _CONFIGS: Final = ("file.delete.delay.ms", "segment.jitter.ms", "min.cleanable.dirty.ratio")

    def __init__(self, process: ClientProcess) -> None:
        super().__init__(process)
        # Each client keeps to another broker, as the first address that answers is used again.
        servers = process.cluster.bootstrap.split(",")
        first = process.client.number % len(servers)
        self._core = process.core(bootstrap_servers=",".join((*servers[first:], *servers[:first])))
        self._admin = AdminCore(self._core)

    @property
    def main(self) -> Core:
        return self._core

    async def run(self) -> None:
        process = self.process
        config = self._CONFIGS[process.client.number % len(self._CONFIGS)]
        scale = 0.0001 if config.endswith("ratio") else 1
        values = process.history.configs.setdefault((process.cluster.name, LEDGER, config), [""])
        resource = ConfigResource(ResourceType.TOPIC, LEDGER)
        number, certain = 0, ""
        while not process.is_stopping:
            number += 1
            value = f"{scale * (process.life.number * 1000 + number):g}"
            values.append(value)
            begun_us = process.now_us
            try:
                change = ConfigChange(config, value)
                (await self._admin.incremental_alter_configs({resource: [change]}, timeout=10)).check()
                if certain in values:
                    values.remove(certain)
                # A request that was repeated may be carried out later once more: see `Administrator`.
                certain = value if process.now_us - begun_us < _SOONEST_RETRY_US else "-"
                process.world.count("configs changed")
                process.step()
            except KafkaError as error:
                process.note_error(f"config {config}", error)
            await self._core.scheduler.sleep(process.chance.randint(50, 400))


class SetUp(Application):
    """Creates the topics of the workload, and lets share groups begin with the first record."""

    def __init__(self, process: ClientProcess, ready: Callable[[], None], replication_factor: int) -> None:
        super().__init__(process)
        self._core = process.core()
        self._admin = AdminCore(self._core)
        self._ready = ready
        self._replication_factor = replication_factor

    @property
    def main(self) -> Core:
        return self._core

    async def run(self) -> None:
        topics = [NewTopic(name, count, self._replication_factor) for name, count in TOPICS.items()]
        topics = [topic._replace(config=_UNCLEAN) if topic.topic == HASTY else topic for topic in topics]
        resource = ConfigResource(ResourceType.GROUP, SHARE_GROUP)
        change = ConfigChange("share.auto.offset.reset", "earliest")
        while True:
            try:
                created = await self._admin.create_topics(topics, timeout=10)
                for error in created.errors.values():
                    if error.code != TOPIC_ALREADY_EXISTS:
                        raise error
                (await self._admin.incremental_alter_configs({resource: [change]}, timeout=10)).check()
            except KafkaError as error:
                self.process.note_error("set up", error)
                await self._core.scheduler.sleep(500)
            else:
                break
        self._core.close()
        self._ready()
