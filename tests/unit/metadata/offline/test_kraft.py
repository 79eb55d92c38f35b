"""Kafka's metadata log, replayed."""

import pytest
from tests.unit.metadata.kraft_directory import PLAIN, topic, value

from ottla.metadata.offline.kraft import KraftMetadata, KraftPartition, UnreadableMetadata
from ottla.protocol.messages import metadata_records as records
from ottla.protocol.schema import Message
from ottla.records.record import Record
from ottla.security.scram import ScramCredential


def replayed(*messages: Message) -> KraftMetadata:
    metadata = KraftMetadata()
    metadata.replay(Record(number, 0, None, value(message)) for number, message in enumerate(messages))
    return metadata


def config(name: str, text: str | None, resource: str = "plain") -> records.ConfigRecord:
    return records.ConfigRecord(resource_type=2, resource_name=resource, name=name, value=text)


def test_only_a_change_of_leader_raises_the_epoch() -> None:
    metadata = replayed(
        *topic("plain", PLAIN, 2),
        records.PartitionChangeRecord(partition_id=0, topic_id=PLAIN, leader=-1),
        records.PartitionChangeRecord(partition_id=0, topic_id=PLAIN, leader=1, isr=[1]),
        records.PartitionChangeRecord(partition_id=1, topic_id=PLAIN, replicas=[1, 2]),
    )
    assert metadata.topics[PLAIN].partitions == {0: KraftPartition((1,), 5), 1: KraftPartition((1, 2), 3)}
    assert metadata.offset == 6


def test_a_topic_goes_with_its_configs() -> None:
    metadata = replayed(
        *topic("plain", PLAIN, 1), config("retention.ms", "1"), records.RemoveTopicRecord(topic_id=PLAIN)
    )
    assert (metadata.topics, metadata.configs) == ({}, {})


def test_a_config_without_a_value_is_gone() -> None:
    metadata = replayed(config("retention.ms", "1"), config("segment.ms", "2"), config("retention.ms", None))
    assert metadata.configs == {(2, "plain"): {"segment.ms": "2"}}


def test_quotas_credentials_features_and_the_rest() -> None:
    entity = [
        records.EntityData(entity_type="user", entity_name=None),
        records.EntityData(entity_type="client-id", entity_name="c"),
    ]
    acl = records.AccessControlEntryRecord(id=PLAIN, resource_name="t", principal="User:a", host="*")
    credential = records.UserScramCredentialRecord(
        name="a", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    metadata = replayed(
        records.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=5.0),
        records.ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=6.0),
        records.ClientQuotaRecord(entity=entity, key="producer_byte_rate", remove=True),
        credential,
        records.UserScramCredentialRecord(name="b", mechanism=2),
        records.RemoveUserScramCredentialRecord(name="b", mechanism=2),
        records.FeatureLevelRecord(name="metadata.version", feature_level=25),
        records.FeatureLevelRecord(name="group.version", feature_level=1),
        records.FeatureLevelRecord(name="group.version", feature_level=0),
        records.ProducerIdsRecord(broker_id=1, next_producer_id=3000),
        acl,
        records.AccessControlEntryRecord(id=bytes(16), resource_name="t", principal="User:b", host="*"),
        records.RemoveAccessControlEntryRecord(id=bytes(16)),
        records.DelegationTokenRecord(token_id="t"),
        records.RegisterBrokerRecord(broker_id=1),
        records.RegisterBrokerRecord(broker_id=2),
        records.UnregisterBrokerRecord(broker_id=2),
    )
    assert metadata.quotas == {(("client-id", "c"), ("user", None)): {"consumer_byte_rate": 6.0}}
    assert metadata.scram == {("a", 1): ScramCredential(b"s", b"k", b"v", 4096)}
    assert metadata.features == {"metadata.version": 25}
    assert metadata.next_producer_id == 3000
    assert (list(metadata.acls), list(metadata.tokens), metadata.brokers) == ([PLAIN], ["t"], {1})


def test_a_transaction_counts_once_it_has_ended() -> None:
    begun = (records.BeginTransactionRecord(name="x"), config("retention.ms", "1"))
    assert replayed(*begun).configs == {}
    assert replayed(*begun, records.AbortTransactionRecord()).configs == {}
    assert replayed(*begun, records.EndTransactionRecord()).configs == {(2, "plain"): {"retention.ms": "1"}}


def test_only_unknown_records_are_counted_as_unknown() -> None:
    metadata = KraftMetadata()
    metadata.replay([Record(0, 0, None, b"\1\x14\0\0"), Record(1, 0, None, b"\1\x50\0\0")])
    assert dict(metadata.unknown) == {80: 1}


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "offset 7: a varint runs past the end"),
        (b"\2\2\0", "offset 7: a frame of version 2"),
        (b"\1\2\5", "offset 7: TopicRecord of version 5 is from a newer Apache Kafka"),
        (b"\1\2\0\5", "offset 7: malformed TopicRecord version 0"),
    ],
)
def test_unreadable_records_raise_with_their_offset(raw: bytes, why: str) -> None:
    with pytest.raises(UnreadableMetadata, match=why):
        KraftMetadata().replay([Record(7, 0, None, raw)])


def test_a_change_of_a_missing_partition_raises() -> None:
    with pytest.raises(UnreadableMetadata, match="offset 0: of a topic or partition that is not there"):
        replayed(records.PartitionChangeRecord(partition_id=0, topic_id=PLAIN, leader=1))
