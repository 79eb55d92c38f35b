"""Every number among the configs at both ends of its range, with requests of all features.

A value at the end of its range must not meet a field, a timer or an array that cannot hold it: each request is answered or its
connection is closed, no handler and no timer raises, and the broker stops. A value that cannot work is refused at the start.
"""

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest
from tests.conformance.conftest import Closed, Wire
from tests.testing.samples import codes_in

from ottla.broker.lifecycle import CannotStart
from ottla.metadata.configs import Config, InvalidConfig, Scope, configs, parse
from ottla.metadata.configs import table as config_table
from ottla.metadata.configs.effects import without_effect
from ottla.protocol.errors import UNKNOWN_SERVER_ERROR
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.messages.share_fetch import FetchPartition as SharePartition
from ottla.protocol.messages.share_fetch import FetchTopic as ShareTopic
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from ottla.protocol.schema import Request
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.testing import EmbeddedBroker

LONGEST_ANSWER_S: Final = 5
BITS: Final = {config_table.SHORT: 15, config_table.INT: 31, config_table.LONG: 63}
NUMBERS: Final = (*BITS, config_table.DOUBLE)
BASE: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    ),
    "delegation.token.secret.key": "secret",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
BUSY: Final = {
    "log.initial.task.delay.ms": "1",
    "log.retention.check.interval.ms": "20",
    "log.cleaner.backoff.ms": "20",
}
"""Retention and compaction without a pause."""
GROUP: Final = 32
NEVER_TRIED: Final = {
    "node.id": "names the broker",
    "broker.id": "names the broker",
    "max.connections": "with 0 a connection waits until there may be one",
}


def ends(row: Config) -> Iterator[str]:
    """The least and the greatest value that a config accepts."""
    if row.type == config_table.DOUBLE:
        tried = ["0", "-1.7976931348623157E308", "4.9E-324", "1", "1.7976931348623157E308"]
    else:
        bits = BITS[row.type]
        tried = [str(-(1 << bits)), str((1 << bits) - 1)]
    valid = row.valid.removesuffix(" or -1")
    if valid.startswith(">="):
        tried.append(valid[2:])
    elif valid.startswith("["):
        tried += valid.strip("[]").split("..")
    for text in dict.fromkeys(tried):
        try:
            parse(row, text)
        except InvalidConfig:
            continue
        yield text


def extremes(scope: str) -> list[tuple[str, str]]:
    return [
        (row.name, text)
        for row in configs(scope).values()
        if row.type in NUMBERS and row.name not in NEVER_TRIED and not without_effect([row.name])
        for text in ends(row)
    ]


class Tour:
    """Requests of all features on one broker."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        bound = {listener.name: address for listener, address in broker.broker.listeners.bound}
        self.wire, self.authenticated = Wire(bound["PLAINTEXT"], is_kafka=False), Wire(bound["SASL"], is_kafka=False)
        self.topic_id = bytes(16)

    def ask(self, request: Request, version: int, wire: Wire | None = None) -> Any:
        """The response, which is no UNKNOWN_SERVER_ERROR; None if the connection was closed."""
        wire = wire or self.wire
        try:
            wire.socket().settimeout(LONGEST_ANSWER_S)
            answer = wire.send(request, version)
        except (Closed, ConnectionError):
            wire._socket = None
            return None
        except TimeoutError:
            raise AssertionError(f"{type(request).__name__} is not answered") from None
        if not isinstance(request, ShareFetchRequest):  # there it means a share partition without state, as in Kafka
            assert UNKNOWN_SERVER_ERROR not in {code for _, code in codes_in(answer)}, type(request).__name__
        return answer

    def run(self, config: str = "") -> None:
        """Send the requests of the features that a broker config may belong to, of all features without one."""
        self.topics()
        self.records()
        first = config.partition(".")[0]
        if first not in ("transaction", "transactional", "delegation"):
            self.classic_groups()
            self.new_groups()
        if first not in ("group", "share", "delegation"):
            self.transactions()
        if first not in ("group", "share", "transaction", "transactional", "log"):
            self.tokens()

    def close(self) -> None:
        self.wire.close()
        self.authenticated.close()

    def topics(self, name: str = "t", **values: str) -> None:
        topic_configs = [CreatableTopicConfig(name=key, value=value) for key, value in values.items()]
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=topic_configs)
        created = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        self.topic_id = created.topics[0].topic_id if created else bytes(16)
        implied = CreatableTopic(name=f"{name}.implied", num_partitions=-1, replication_factor=-1)
        self.ask(CreateTopicsRequest(topics=[implied], timeout_ms=1000), 7)
        for kind, resource in ((2, name), (4, "1")):
            config_resource = DescribeConfigsResource(resource_type=kind, resource_name=resource)
            self.ask(DescribeConfigsRequest(resources=[config_resource]), 4)
        entity = EntityData(entity_type="client-id", entity_name=None)
        limits = [OpData(key="producer_byte_rate", value=1e9), OpData(key="request_percentage", value=1e5)]
        self.ask(AlterClientQuotasRequest(entries=[EntryData(entity=[entity], ops=limits)]), 1)

    def produce(self, name: str, batch: bytes, transactional_id: str | None = None) -> None:
        data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
        self.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data], transactional_id=transactional_id), 9)

    def records(self, name: str = "t") -> None:
        for codec in range(5):
            now_ms = int(time.time() * 1000)
            self.produce(name, build([Record(at, now_ms, b"k", b"v" * 100) for at in range(3)], codec=codec))
        for isolation in (0, 1):
            partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            topics = [FetchTopic(topic=name, partitions=[partition])]
            fields: dict[str, Any] = {
                "max_wait_ms": 10,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "isolation_level": isolation,
            }
            self.ask(FetchRequest(topics=topics, session_epoch=0, **fields), 12)
            self.ask(FetchRequest(topics=topics, **{**fields, "max_bytes": 2**31 - 1}), 4)
        for timestamp in (-1, -2, -3, 0, 2**63 - 1):
            place = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            self.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[place])]), 8)
        cut = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        self.ask(DeleteRecordsRequest(topics=[cut], timeout_ms=1000), 2)

    def classic_groups(self) -> None:
        join = JoinGroupRequest(
            group_id="classic",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=500,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(10))],
        )
        self.ask(join, 3)
        for retention in (-1, 2**63 - 1):
            place = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="m")
            topic = OffsetCommitRequestTopic(name="t", partitions=[place])
            self.ask(OffsetCommitRequest(group_id="simple", topics=[topic], retention_time_ms=retention), 3)
        self.ask(
            OffsetFetchRequest(group_id="simple", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]), 7
        )

    def new_groups(self, topic: str = "t") -> None:
        member = "AAAAAAAAAAAAAAAAAAAAAA"
        for _ in range(2):
            beat = ConsumerGroupHeartbeatRequest(
                group_id="consumer",
                member_id=member,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=[topic],
                topic_partitions=[],
            )
            self.ask(beat, 1)
            share = ShareGroupHeartbeatRequest(group_id="share", member_id=member, subscribed_topic_names=[topic])
            self.ask(share, 1)
            topology = Topology(epoch=1, subtopologies=[Subtopology(subtopology_id="s", source_topics=[topic])])
            streams = StreamsGroupHeartbeatRequest(
                group_id="streams",
                member_id=member,
                rebalance_timeout_ms=1000,
                topology=topology,
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
                process_id="p",
            )
            self.ask(streams, 0)
        topics = [ShareTopic(topic_id=self.topic_id, partitions=[SharePartition(partition_index=0)])]
        for epoch in (0, 1):
            fetch = ShareFetchRequest(
                group_id="share",
                member_id=member,
                share_session_epoch=epoch,
                max_wait_ms=20,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=10,
                batch_size=10,
                topics=topics,
            )
            self.ask(fetch, 1)
        self.ask(GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)), 0)

    def set_group_config(self, group: str, name: str, text: str | None) -> None:
        """Set a config of a group, delete it without `text`."""
        change = AlterableConfig(name=name, config_operation=0 if text is not None else 1, value=text)
        resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[change])
        self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)

    def transactions(self) -> None:
        self.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        began = self.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 4)
        if began is None:
            return
        who = (began.producer_id, began.producer_epoch)
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        self.ask(add, 3)
        batch = build(
            [Record(0, 1_700_000_000_000, b"k", b"v")],
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=0,
            transactional=True,
        )
        self.produce("t", batch, "x")
        self.ask(EndTxnRequest(transactional_id="x", producer_id=who[0], producer_epoch=who[1], committed=True), 3)

    def tokens(self) -> None:
        wire = self.authenticated
        self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, wire)
        self.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2, wire)
        for lifetime in (-1, 2**63 - 1):
            made = self.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=lifetime), 3, wire)
            if made is None:
                return
            self.ask(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=lifetime), 2, wire)
            self.ask(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=2**63 - 1), 2, wire)
            self.ask(DescribeDelegationTokenRequest(owners=None), 3, wire)


def check(caplog: pytest.LogCaptureFixture, run: Callable[[], None]) -> str | None:
    """Return the error of a run, None if it has none."""
    caplog.clear()
    try:
        with caplog.at_level(logging.ERROR):
            run()
    except (InvalidConfig, CannotStart):
        return None
    except Exception as cause:  # noqa: BLE001 - whatever it is, it is a row of the result
        return f"{type(cause).__name__}: {cause}"
    raised = [record for record in caplog.records if record.exc_info]
    return raised[0].getMessage() + f": {raised[0].exc_info[1]!r}" if raised and raised[0].exc_info else None


def run_tour(config: str, value: str) -> None:
    with EmbeddedBroker({**BASE, config: value}) as broker:
        tour = Tour(broker)
        try:
            tour.run(config)
        finally:
            tour.close()


def test_every_broker_config_at_the_ends_of_its_range(caplog: pytest.LogCaptureFixture) -> None:
    wrong = {}
    for name, text in extremes(Scope.BROKER):
        if fault := check(caplog, partial(run_tour, name, text)):
            wrong[name, text] = fault
    assert wrong == {}


def test_every_topic_config_at_the_ends_of_its_range(caplog: pytest.LogCaptureFixture) -> None:
    wrong = {}
    with EmbeddedBroker(BASE | BUSY) as broker:
        tour = Tour(broker)
        for number, (name, text) in enumerate(extremes(Scope.TOPIC)):
            topic = f"t{number}"

            def run(topic: str = topic, name: str = name, text: str = text) -> None:
                tour.topics(topic, **{"cleanup.policy": "compact,delete", name: text})
                tour.records(topic)

            if fault := check(caplog, run):
                wrong[name, text] = fault
        if fault := check(caplog, partial(time.sleep, 0.5)):
            wrong["upkeep", ""] = fault
        tour.close()
    assert wrong == {}


def test_every_group_config_at_the_ends_of_its_range(caplog: pytest.LogCaptureFixture) -> None:
    wrong = {}
    with EmbeddedBroker(BASE) as broker:
        tour = Tour(broker)
        tour.run()
        for name, text in extremes(Scope.GROUP):

            def run(name: str = name, text: str = text) -> None:
                for group in ("classic", "consumer", "share", "streams"):
                    tour.set_group_config(group, name, text)
                tour.classic_groups()
                tour.new_groups()
                for group in ("classic", "consumer", "share", "streams"):
                    tour.set_group_config(group, name, None)

            if fault := check(caplog, run):
                wrong[name, text] = fault
        tour.close()
    assert wrong == {}
