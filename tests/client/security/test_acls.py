"""ACLs in the admin client, and clients that are denied: on Ottla, or with `--authorized-kafka` on Apache Kafka.

The commands in the messages of denied clients are run, until the client is allowed to do what it wants.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    Admin,
    ConfigResource,
    Consumer,
    GroupMetadata,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    PatternType,
    Producer,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ShareConsumer,
    TopicPartition,
    aio,
)
from ottla.client.errors import KafkaError, NotAuthorized
from ottla.testing import EmbeddedBroker

from .conftest import fresh
from .users import PATIENCE_S, Users, allowing, users

__all__ = ["users"]

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
TRANSACTIONAL_ID = AclResourceType.TRANSACTIONAL_ID


def test_acls_are_created_described_and_deleted(users: Users) -> None:
    name = fresh()
    read = allowing(AclOperation.READ, TOPIC, name, "User:alice")
    denial = AclBinding(
        ResourcePattern(TOPIC, name[:3], PatternType.PREFIXED),
        AccessControlEntry("User:*", AclOperation.DELETE, AclPermissionType.DENY, "10.0.0.0/8"),
    )
    results = users.root.create_acls([read, denial, read])
    assert dict(results) == {read: None, denial: None}
    users.settled()
    assert set(users.root.describe_acls()) >= {read, denial}
    assert users.root.describe_acls(read.to_filter()) == [read]
    matching = AclBindingFilter(ResourcePatternFilter(TOPIC, name, PatternType.MATCH))
    assert set(users.root.describe_acls(matching)) == {read, denial}
    exactly = AclBindingFilter(ResourcePatternFilter(TOPIC, name))
    assert users.root.describe_acls(exactly) == [read]
    nothing = AclBindingFilter(entry=AccessControlEntryFilter("User:nobody"))
    deleted = users.root.delete_acls([denial.to_filter(), nothing])
    assert dict(deleted) == {denial.to_filter(): (denial,), nothing: ()}
    users.settled()
    assert users.root.describe_acls(matching) == [read]


def test_an_acl_that_is_refused_does_not_hinder_others(users: Users) -> None:
    good = allowing(AclOperation.READ, TOPIC, fresh(), "User:alice")
    nameless = allowing(AclOperation.READ, TOPIC, "", "User:alice")
    elsewhere = good._replace(entry=good.entry._replace(host="10.0.0.0/33"))
    results = users.root.create_acls([nameless, good, elsewhere])
    assert results.successes == {good: None}
    assert str(results.errors[nameless]).endswith("INVALID_REQUEST: Invalid empty resource name")
    assert "Value [33] not in range [0,32]" in str(results.errors[elsewhere])
    users.settled()
    assert users.root.describe_acls(good.to_filter()) == [good]


def test_asyncio(users: Users) -> None:
    async def run() -> None:
        binding = allowing(AclOperation.WRITE, GROUP, fresh("g"), "User:alice")
        async with aio.Admin(users.super_configs) as admin:
            (await admin.create_acls([binding])).check()
            await asyncio.sleep(0.2 if users.broker.is_kafka else 0)
            assert await admin.describe_acls(binding.to_filter()) == [binding]
            assert (await admin.delete_acls([binding.to_filter()]))[binding.to_filter()] == (binding,)

    asyncio.run(run())


def test_authorized_operations(users: Users) -> None:
    topic, group, share_group = users.topic(), fresh("g"), fresh("sg")
    with Consumer(users.super_configs, group_id=group) as consumer:
        consumer.subscribe([topic])
        consumer.poll(1)
        for operation, kind, name in (
            (AclOperation.READ, GROUP, share_group),
            (AclOperation.READ, TOPIC, topic),
            (AclOperation.DELETE, GROUP, group),
            (AclOperation.ALTER, CLUSTER, "kafka-cluster"),
        ):
            users.allow(operation, kind, name)
        with Admin(users.configs()) as alice:
            described = alice.describe_topics([topic], include_authorized_operations=True)[topic]
            assert described.authorized_operations == (AclOperation.READ, AclOperation.DESCRIBE)
            by_id = alice.describe_topics([described.topic_id], include_authorized_operations=True)
            assert by_id[described.topic_id].authorized_operations == (AclOperation.READ, AclOperation.DESCRIBE)
            for describe in (alice.describe_consumer_groups, alice.describe_classic_groups):
                assert describe([group], include_authorized_operations=True)[group].authorized_operations == (
                    AclOperation.DELETE,
                    AclOperation.DESCRIBE,
                )
            with ShareConsumer(users.super_configs, group_id=share_group) as sharer:
                sharer.subscribe([topic])
                sharer.poll(1)
                described_share_groups = alice.describe_share_groups([share_group], include_authorized_operations=True)
                assert described_share_groups[share_group].authorized_operations == (
                    AclOperation.READ,
                    AclOperation.DESCRIBE,
                )
            cluster = alice.describe_cluster(include_authorized_operations=True)
            assert cluster.authorized_operations == (AclOperation.ALTER, AclOperation.DESCRIBE)
            assert alice.describe_topics([topic])[topic].authorized_operations is None
            assert alice.describe_consumer_groups([group])[group].authorized_operations is None
            assert alice.describe_cluster().authorized_operations is None


def test_a_denied_producer(users: Users) -> None:
    topic = users.topic()

    def produce(**configs: Any) -> None:
        with Producer(users.configs(), **configs) as producer:
            outcomes: list[KafkaError | None] = []
            producer.produce(topic, "x", on_delivery=lambda error, _: outcomes.append(error))
            producer.flush(30)
            (error,) = outcomes
            if error is not None:
                raise error

    assert users.grant_until(produce)[0] == [f"Write on topic {topic}"]
    users.disallow()
    users.allow(AclOperation.DESCRIBE, TOPIC, topic)
    for configs in ({}, {"enable_idempotence": False}):
        with pytest.raises(NotAuthorized, match=f"It needs Write on topic {topic}: "):
            produce(**configs)
    assert users.grant_until(produce)[0] == [f"Write on topic {topic}"]


def test_a_denied_producer_goes_on_when_it_is_allowed(users: Users) -> None:
    topic = users.topic()
    users.allow(AclOperation.WRITE, TOPIC, topic)
    with Producer(users.configs(), acks="all") as producer:
        outcomes: list[KafkaError | None] = []

        def send(value: str) -> KafkaError | None:
            producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
            producer.flush(30)
            return outcomes[-1]

        assert send("a") is None
        users.disallow()
        users.allow(AclOperation.DESCRIBE, TOPIC, topic)
        assert isinstance(send("b"), NotAuthorized)
        users.allow(AclOperation.WRITE, TOPIC, topic)
        assert send("c") is None


def test_a_denied_transactional_producer(users: Users) -> None:
    topic, source, group, name = users.topic(), users.topic(1), fresh("g"), fresh("tx")

    def transact() -> None:
        with Producer(users.configs(), transactional_id=name) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            try:
                producer.produce(topic, "x")
                producer.send_offsets_to_transaction(
                    {TopicPartition(source, 0): OffsetAndMetadata(1)}, GroupMetadata(group)
                )
                producer.commit_transaction()
            except KafkaError as error:
                producer.abort_transaction()
                if not isinstance(error, NotAuthorized) and "AUTHORIZATION_FAILED" in str(error):
                    raise NotAuthorized(str(error), error.code) from None
                raise

    granted, _ = users.grant_until(transact)
    assert granted[0] == f"Write on transactional id {name}"
    assert set(granted) == {
        f"Write on transactional id {name}",
        f"Write on topic {topic}",
        f"Read on topic {source}",
        f"Read on group {group}",
    }


def test_denied_offsets_of_a_transaction_are_abortable(users: Users) -> None:
    topic, source, group, name = users.topic(), users.topic(1), fresh("g"), fresh("tx")
    offsets = {TopicPartition(source, 0): OffsetAndMetadata(1)}
    users.allow(AclOperation.WRITE, TRANSACTIONAL_ID, name)
    users.allow(AclOperation.READ, GROUP, group)
    users.allow(AclOperation.WRITE, TOPIC, topic)
    users.allow(AclOperation.DESCRIBE, TOPIC, source)
    with Producer(users.configs(), transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(NotAuthorized, match=f"Read on topic {source}"):
            producer.send_offsets_to_transaction(offsets, GroupMetadata(group))
        producer.abort_transaction()
        users.allow(AclOperation.READ, TOPIC, source)
        producer.begin_transaction()
        producer.produce(topic, "x")
        producer.send_offsets_to_transaction(offsets, GroupMetadata(group))
        producer.commit_transaction()


@pytest.mark.parametrize("may_describe", [False, True])
def test_a_denied_init_transactions_is_called_again(users: Users, may_describe: bool) -> None:
    """As with Java's producer, which allows it only if the producer may describe the transactional id."""
    name = fresh("tx")
    if may_describe:
        users.allow(AclOperation.DESCRIBE, TRANSACTIONAL_ID, name)
    with Producer(users.configs(), transactional_id=name) as producer:
        for _ in range(2):
            with pytest.raises(NotAuthorized, match=f"Write on transactional id {name}"):
                producer.init_transactions()
        users.allow(AclOperation.WRITE, TRANSACTIONAL_ID, name)
        producer.init_transactions()


def test_a_transaction_with_a_denied_topic_is_aborted(users: Users) -> None:
    """The next one succeeds when the topic is permitted."""
    topic, name = users.topic(), fresh("tx")
    users.allow(AclOperation.WRITE, TRANSACTIONAL_ID, name)
    with Producer(users.configs(), transactional_id=name) as producer:
        producer.init_transactions()
        for operation in (None, AclOperation.DESCRIBE):
            if operation is not None:
                users.allow(operation, TOPIC, topic)
            producer.begin_transaction()
            if operation is None:
                with pytest.raises(NotAuthorized, match=f"Write on topic {topic}"):
                    producer.produce(topic, "a")
            else:
                producer.produce(topic, "a")
            with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                producer.commit_transaction()
            producer.abort_transaction()
        users.allow(AclOperation.WRITE, TOPIC, topic)
        producer.begin_transaction()
        producer.produce(topic, "b")
        producer.commit_transaction()


def test_a_denied_commit_of_a_transaction_is_fatal(users: Users) -> None:
    """As with Java's producer, also after the permission is back."""
    topic, name = users.topic(), fresh("tx")
    users.allow(AclOperation.WRITE, TRANSACTIONAL_ID, name)
    users.allow(AclOperation.WRITE, TOPIC, topic)
    with Producer(users.configs(), transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, "a")
        producer.flush()
        users.disallow()
        with pytest.raises(NotAuthorized, match=f"Write on transactional id {name}"):
            producer.commit_transaction()
        users.allow(AclOperation.WRITE, TRANSACTIONAL_ID, name)
        for call in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(NotAuthorized, match=f"Write on transactional id {name}"):
                call()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_denied_consumer(users: Users, protocol: str) -> None:
    topic, group = users.topic(1), fresh("g")
    configs = users.configs(**{"group.protocol": protocol})
    with Consumer(configs, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])

        def consume() -> bytes | None:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                record = consumer.poll(1)
                if record is not None:
                    return record.value
            raise AssertionError("no record")

        granted, value = users.grant_until(consume)
        assert value == b"0"
        assert set(granted) == {f"Read on group {group}", f"Read on topic {topic}"}
        consumer.commit()
        users.disallow()
        with pytest.raises(NotAuthorized):
            consumer.commit()
        with pytest.raises(NotAuthorized):
            consumer.poll(20)
        users.allow(AclOperation.READ, GROUP, group)
        users.allow(AclOperation.READ, TOPIC, topic)
        with Producer(users.super_configs) as producer:
            producer.produce(topic, "next")
        assert users.grant_until(consume) == ([], b"next")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_raises_also_in_a_long_poll(users: Users, protocol: str) -> None:
    topic, group = users.topic(), fresh("g")
    users.allow(AclOperation.READ, GROUP, group)
    with Consumer(users.configs(**{"group.protocol": protocol}), group_id=group) as consumer:
        consumer.subscribe([topic])
        begun = time.monotonic()
        with pytest.raises(NotAuthorized, match=f"Read on topic {topic}"):
            consumer.poll(30)
        assert time.monotonic() - begun < PATIENCE_S


def test_a_denied_topic_does_not_stop_the_others(users: Users) -> None:
    """A consumer that goes on after the error reads the topics that it may read, as with Java's classic consumer."""
    open_topic, closed, group = users.topic(1), users.topic(1), fresh("g")
    users.allow(AclOperation.READ, GROUP, group)
    users.allow(AclOperation.READ, TOPIC, open_topic)
    with Consumer(users.configs(), group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([open_topic, closed])
        errors: list[str] = []
        values: list[bytes | None] = []
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not (errors and values):
            try:
                record = consumer.poll(1)
            except NotAuthorized as error:
                errors.append(str(error))
            else:
                values += [record.value] if record is not None else []
        assert values == [b"0"]
        assert [error.split(":")[0] for error in errors] == [f"topic {closed}"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_hidden_topics_do_not_match_a_pattern(users: Users, protocol: str) -> None:
    prefix, group = fresh("p"), fresh("g")
    names = [f"{prefix}-{number}" for number in range(3)]
    users.root.create_topics([NewTopic(name, 1, 1) for name in names]).check()
    users.allow(AclOperation.READ, GROUP, group)
    users.allow(AclOperation.READ, TOPIC, names[1])
    with Consumer(users.configs(**{"group.protocol": protocol}), group_id=group) as consumer:
        consumer.subscribe(pattern=f"{prefix}.*")
        deadline = time.monotonic() + 20
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.2)
        assert consumer.assignment() == [TopicPartition(names[1], 0)]


def test_a_denied_consumer_without_a_group(users: Users) -> None:
    topic = users.topic(1)

    def consume() -> bytes | None:
        with Consumer(users.configs(), auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            record = consumer.poll(PATIENCE_S)
            assert record is not None
            return record.value

    users.allow(AclOperation.DESCRIBE, TOPIC, topic)
    assert users.grant_until(consume) == ([f"Read on topic {topic}"], b"0")


def test_a_denied_fetch_is_repeated_at_intervals(users: Users) -> None:
    """Each repetition raises an error; between them are about retry.backoff.max.ms, 1 s."""
    topic = users.topic(1)
    users.allow(AclOperation.DESCRIBE, TOPIC, topic)
    with Consumer(users.configs(), auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        errors = 0
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            try:
                consumer.poll(0.1)
            except NotAuthorized:
                errors += 1
    assert 2 <= errors <= 5


def test_a_member_that_was_denied_its_group_keeps_its_place(users: Users) -> None:
    """A new member would wait for the end of the session of the old one, 45 s."""
    topic, group = users.topic(1), fresh("g")
    users.allow(AclOperation.READ, TOPIC, topic)
    users.allow(AclOperation.READ, GROUP, group)
    configs = users.configs() | {"heartbeat.interval.ms": 200, "enable.auto.commit": False}
    with Consumer(configs, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(20) is not None
        users.disallow(resource_type=GROUP)
        with pytest.raises(NotAuthorized, match=f"Read on group {group}"):
            consumer.poll(20)
        users.allow(AclOperation.READ, GROUP, group)
        begun = time.monotonic()
        assert consumer.poll(30) is not None
        assert time.monotonic() - begun < 20
        described = users.root.describe_consumer_groups([group])[group]
        assert len(described.members) == 1


def test_a_denied_share_consumer(users: Users) -> None:
    topic, group = users.topic(), fresh("sg")
    with ShareConsumer(users.configs(), group_id=group) as consumer:
        consumer.subscribe([topic])

        def consume() -> bool:
            deadline = time.monotonic() + 20  # Apache Kafka assigns partitions with the second heartbeat, after 5 s
            while time.monotonic() < deadline:
                consumer.poll(1)
                with Producer(users.super_configs) as producer:
                    producer.produce(topic, "x")
                if consumer.poll(1):
                    return True
            raise AssertionError("no record")

        granted, _ = users.grant_until(consume)
        assert set(granted) == {f"Read on group {group}", f"Read on topic {topic}"}


def test_denied_admin_calls(users: Users) -> None:
    topic, missing, group = users.topic(), fresh(), fresh("g")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    with Admin(users.configs()) as alice:
        calls: list[tuple[Callable[[], Any], list[str]]] = [
            (lambda: alice.describe_acls(), ["Describe on the cluster"]),
            (
                lambda: alice.create_acls([allowing(AclOperation.READ, TOPIC, "x", "User:q")]).check(),
                ["Alter on the cluster"],
            ),
            (lambda: alice.create_topics([NewTopic(missing, 1, 1)]).check(), [f"Create on topic {missing}"]),
            (lambda: alice.describe_topics([topic]).check(), [f"Describe on topic {topic}"]),
            (lambda: alice.create_partitions([NewPartitions(topic, 2)]).check(), [f"Alter on topic {topic}"]),
            (lambda: alice.describe_configs([resource]).check(), [f"DescribeConfigs on topic {topic}"]),
            (lambda: alice.list_consumer_group_offsets([group]).check(), [f"Describe on group {group}"]),
            (lambda: alice.describe_client_quotas(), ["DescribeConfigs on the cluster"]),
            (lambda: alice.delete_topics([topic]).check(), [f"Delete on topic {topic}"]),
        ]
        for call, permissions in calls:
            assert users.grant_until(call)[0] == permissions


def test_acls_without_an_authorizer() -> None:
    with EmbeddedBroker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        binding = allowing(AclOperation.READ, TOPIC, "t", "User:alice")
        with pytest.raises(
            KafkaError,
            match=r"SECURITY_DISABLED: No Authorizer is configured on the broker\. Set authorizer\.class\.name=",
        ):
            admin.describe_acls()
        for results in (admin.create_acls([binding]), admin.delete_acls([binding.to_filter()])):
            (error,) = results.errors.values()
            assert error.name == "SECURITY_DISABLED"
            assert "Set authorizer.class.name=" in str(error)
        # Everything is allowed.
        cluster = admin.describe_cluster(include_authorized_operations=True)
        assert cluster.authorized_operations is not None
        assert AclOperation.IDEMPOTENT_WRITE in cluster.authorized_operations
