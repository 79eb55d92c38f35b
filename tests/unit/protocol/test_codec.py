"""Every declared message, in every version, survives a round trip; nothing that is not one gets past a decoder."""

import random
from collections.abc import Iterator

import pytest
from tests.oracles.dice import MessageDice, declared_messages

from ottla.protocol import codec
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.consumer_group_current_member_assignment_record import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from ottla.protocol.messages.consumer_group_member_metadata_record import ConsumerGroupMemberMetadataValue
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.schema import Message
from ottla.protocol.wire import PeerError


def every_version() -> Iterator[tuple[type[Message], int]]:
    for cls in declared_messages().values():
        for version in range(cls.VERSIONS.first, cls.VERSIONS.last + 1):
            yield cls, version


def test_every_version_survives_a_round_trip() -> None:
    dice = MessageDice(random.Random(1))
    for cls, version in every_version():
        for _ in range(10):
            message = dice.message(cls, version)
            data = codec.encode(message, version)
            assert codec.decode(cls, version, data) == (message, len(data))
            assert codec.decode_positions(cls, version, data)[1] == len(data)


def test_damaged_bytes_raise_nothing_but_the_peer_error() -> None:
    rng = random.Random(2)
    for cls, version in every_version():
        data = bytearray(codec.encode(MessageDice(rng).message(cls, version), version))
        for _ in range(20):
            damaged = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                if damaged:
                    damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            cut = bytes(damaged[: rng.randrange(len(damaged) + 1)])
            try:
                codec.decode(cls, version, cut)
                codec.decode_positions(cls, version, cut)
            except PeerError:
                continue
            except Exception as error:
                error.add_note(f"{cls.__name__} {version}: {cut.hex()}")
                raise


def test_known_bytes() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=5, member_id="m", group_instance_id=None)
    assert codec.encode(request, 0).hex() == "0001670000000500016d"
    assert codec.encode(request, 3).hex() == "0001670000000500016dffff"
    assert codec.encode(request, 4).hex() == "026700000005026d0000"


def test_a_value_that_a_version_cannot_carry_is_refused() -> None:
    with pytest.raises(codec.UnsupportedField, match="group_instance_id"):
        codec.encode(HeartbeatRequest(group_instance_id="i"), 2)
    with pytest.raises(codec.UnsupportedField, match="no version 99"):
        codec.encode(HeartbeatRequest(), 99)
    with pytest.raises(codec.UnsupportedField, match="may not be null"):
        codec.encode(MetadataRequest(topics=None), 0)


def test_null_and_empty_are_different_in_a_tagged_list() -> None:
    """Kafka leaves the default, an empty list, out, and writes null."""
    partitions = TopicPartitions(topic_id=bytes(16))
    assert codec.encode(value_of(partitions), 0).hex().endswith("00010000")
    partitions.assignment_epochs = None
    data = codec.encode(value_of(partitions), 0)
    assert data.hex().endswith("000101000100" + "00")
    assert codec.decode(ConsumerGroupCurrentMemberAssignmentValue, 0, data)[0] == value_of(partitions)


def test_a_tagged_struct_that_is_null_is_a_zero() -> None:
    """The bytes are what Kafka's ConsumerGroupMemberMetadataValue 4.4.0 writes, without and with null."""
    value = ConsumerGroupMemberMetadataValue(instance_id="", rack_id="", subscribed_topic_regex="", server_assignor="")
    assert codec.encode(value, 0).hex() == "010101010101ffffffff0100"
    value.classic_member_metadata = None
    assert codec.encode(value, 0).hex() == "010101010101ffffffff0101000100"
    assert codec.decode(ConsumerGroupMemberMetadataValue, 0, codec.encode(value, 0))[0] == value


def value_of(partitions: TopicPartitions) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1, previous_member_epoch=1, state=0, partitions_pending_revocation=[partitions]
    )


def test_unknown_tagged_fields_cannot_travel_in_a_version_without_tags() -> None:
    request = HeartbeatRequest(group_id="g")
    request.unknown_tags = {5: b"abc"}
    with pytest.raises(codec.UnsupportedField, match="unknown tagged fields"):
        codec.encode(request, 3)


def test_unknown_tagged_fields_are_kept() -> None:
    data = codec.encode(HeartbeatRequest(group_id="g"), 4)
    with_tags = data[:-1] + bytes.fromhex("0205036162638101026869")
    message, end = codec.decode(HeartbeatRequest, 4, with_tags)
    assert end == len(with_tags)
    assert message.unknown_tags == {5: b"abc", 129: b"hi"}
    assert codec.encode(message, 4) == with_tags


@pytest.mark.parametrize("section", ["0205000500", "0206000500", "010009", "01"], ids=str)
def test_a_broken_tagged_section_is_refused(section: str) -> None:
    data = codec.encode(HeartbeatRequest(group_id="g"), 4)[:-1] + bytes.fromhex(section)
    with pytest.raises(PeerError):
        codec.decode(HeartbeatRequest, 4, data)


def test_text_that_is_no_utf_8_is_read_as_java_reads_it() -> None:
    data = bytes.fromhex("0003 67ff68 00000005 0001 6d")
    request, end = codec.decode(HeartbeatRequest, 0, data)
    assert (request.group_id, request.member_id, end) == ("g\ufffdh", "m", len(data))
    assert codec.decode_positions(HeartbeatRequest, 0, data)[0].group_id == "g\ufffdh"
    with pytest.raises(PeerError):
        codec.decode(HeartbeatRequest, 0, data[:-1])


def test_any_negative_length_is_null_where_null_is_allowed() -> None:
    assert codec.decode(HeartbeatRequest, 3, bytes.fromhex("000167 00000005 00016d fffe"))[0].group_instance_id is None
    with pytest.raises(PeerError):
        codec.decode(HeartbeatRequest, 3, bytes.fromhex("fffe 00000005 00016d ffff"))


def test_a_varint_is_at_most_an_int32() -> None:
    data = codec.encode(HeartbeatRequest(group_id="g"), 4)[:-1]
    kept, _ = codec.decode(HeartbeatRequest, 4, data + bytes.fromhex("01ffffffff0700"))
    assert kept.unknown_tags == {0x7FFFFFFF: b""}
    with pytest.raises(PeerError, match="31 bits"):
        codec.decode(HeartbeatRequest, 4, data + bytes.fromhex("01ffffffff0800"))


def test_a_tag_that_only_another_version_knows_is_refused() -> None:
    """As Kafka 4.4.0 does: the log directories of a heartbeat came with version 1."""
    data = codec.encode(BrokerHeartbeatRequest(), 0)[:-1] + bytes.fromhex("01000101")
    with pytest.raises(PeerError, match="tag 0 is not valid in version 0"):
        codec.decode(BrokerHeartbeatRequest, 0, data)
    assert codec.decode(BrokerHeartbeatRequest, 1, data)[0].offline_log_dirs == []


def test_a_lying_count_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(PeerError):
        codec.decode(MetadataRequest, 0, bytes.fromhex("7fffffff"))
    with pytest.raises(PeerError):
        codec.decode(FetchRequest, 4, bytes.fromhex("ffffffff 00000000 00000000 00000000 00 7fffffff"))


def test_positions_say_where_records_lie() -> None:
    data = bytes.fromhex("ffff 0001 00000064 00000001 000174 00000001 00000007 00000003") + b"abc"
    request, end = codec.decode_positions(ProduceRequest, 3, data)
    assert end == len(data)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, 1, 100)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index) == ("t", 7)
    assert partition.records == (len(data) - 3, len(data))  # type: ignore[comparison-overlap]


def test_a_file_region_passes_through_unread() -> None:
    from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

    class Region:
        def __len__(self) -> int:
            return 1000

    region = Region()
    topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=0, records=region)])
    pieces = codec.encode_pieces(FetchResponse(responses=[topic]), 12)
    assert [type(piece) for piece in pieces] == [bytes, Region, bytes]
    assert pieces[0].endswith(bytes.fromhex("e907"))  # 1000 + 1 as a varint


def test_unknown_tagged_fields_of_one_row_of_numbers() -> None:
    rows = [OffsetCommitResponsePartition(partition_index=index, error_code=3) for index in range(3)]
    topic = OffsetCommitResponseTopic(name="t", partitions=rows)
    response = OffsetCommitResponse(topics=[topic])
    plain = codec.encode(response, 9)
    rows[1].unknown_tags = {7: b"more"}
    encoded = codec.encode(response, 9)
    assert codec.decode(OffsetCommitResponse, 9, encoded) == (response, len(encoded))
    assert len(encoded) == len(plain) + 2 + len(b"more")
    assert codec.decode(OffsetCommitResponse, 9, plain)[0].topics[0].partitions[1].unknown_tags is None
