"""Load that touches every service of a broker, with Ottla's client: the same for Ottla and for Apache Kafka.

While the `with` block runs, the members of the groups, a share session and fetch sessions exist.
"""

import contextlib
from collections.abc import Iterator

from ottla import (
    Admin,
    ConfigChange,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
    TopicPartition,
)

ORDERS = "orders"
LEDGER = "ledger"
RECORDS = 200


@contextlib.contextmanager
def load(bootstrap_servers: str) -> Iterator[None]:
    """Produce and consume by each kind of group and in transactions, with quotas and errors."""
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(Admin(bootstrap_servers=bootstrap_servers))
        _create(admin)
        producer = stack.enter_context(Producer(bootstrap_servers=bootstrap_servers, client_id="writer"))
        for number in range(RECORDS):
            producer.produce(ORDERS, key=str(number), value="x" * 100)
            producer.produce(LEDGER, key=str(number % 10), value="y" * 100)
        producer.flush(30)
        _fail_to_produce(bootstrap_servers)
        for name, protocol in (("classic-readers", "classic"), ("readers", "consumer")):
            consumer = stack.enter_context(
                Consumer(
                    bootstrap_servers=bootstrap_servers,
                    client_id="reader",
                    group_id=name,
                    group_protocol=protocol,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                )
            )
            consumer.subscribe([ORDERS])
            _consume(consumer, RECORDS // 2)
            consumer.commit()
        _share(stack, admin, bootstrap_servers)
        _transact(stack, bootstrap_servers)
        admin.delete_records({TopicPartition(ORDERS, 0): 10}).check()
        with contextlib.suppress(KafkaError):
            admin.list_offsets({TopicPartition("absent", 0): -1}, timeout=1.0)
        yield


def _create(admin: Admin) -> None:
    admin.create_topics([NewTopic(ORDERS, num_partitions=2), NewTopic(LEDGER, 1, config={"cleanup.policy": "compact"})])
    limits: dict[str, float | None] = {
        "producer_byte_rate": 50e6,
        "consumer_byte_rate": 50e6,
        "request_percentage": 500.0,
    }
    clients: list[frozenset[tuple[str, str | None]]]
    clients = [frozenset({("client-id", name)}) for name in ("writer", "reader")]
    admin.alter_client_quotas(dict.fromkeys(clients, limits)).check()
    admin.alter_client_quotas({frozenset({("user", "ANONYMOUS")}): {"controller_mutation_rate": 500.0}}).check()
    group = ConfigResource(ResourceType.GROUP, "workers")
    admin.incremental_alter_configs({group: [ConfigChange("share.auto.offset.reset", "earliest")]}).check()


def _consume(consumer: Consumer, count: int) -> None:
    taken = 0
    while taken < count:
        taken += len(consumer.consume(count - taken, timeout=30.0))


def _fail_to_produce(bootstrap_servers: str) -> None:
    """Send a record that the topic's limit refuses."""
    with Producer(bootstrap_servers=bootstrap_servers, max_request_size=4_000_000) as producer:
        producer.produce(ORDERS, value=bytes(2_000_000), on_delivery=lambda error, _: None)
        with contextlib.suppress(KafkaError):
            producer.flush(30)


def _share(stack: contextlib.ExitStack, admin: Admin, bootstrap_servers: str) -> None:
    consumer = stack.enter_context(ShareConsumer(bootstrap_servers=bootstrap_servers, group_id="workers"))
    consumer.subscribe([ORDERS])
    taken = 0
    for _ in range(60):
        records = consumer.poll(1.0)
        taken += len(records)
        if taken:
            break
    assert taken, "the share group got no records"
    consumer.commit()


def _transact(stack: contextlib.ExitStack, bootstrap_servers: str) -> None:
    producer = stack.enter_context(Producer(bootstrap_servers=bootstrap_servers, transactional_id="accounts"))
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.produce(LEDGER, key=str(number), value="z")
        if number % 2:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    reader = stack.enter_context(
        Consumer(
            bootstrap_servers=bootstrap_servers,
            group_id="committed",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
    )
    reader.assign([TopicPartition(LEDGER, 0)])
    reader.consume(1, timeout=30.0)
