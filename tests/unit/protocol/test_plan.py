"""Plans of decoding: the same results and errors as the generated decoders, over random messages of every version."""

import gc
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.oracles.dice import MessageDice, declared_messages

from ottla.protocol import codec
from ottla.protocol.decoder_source import generated
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.planning import Planner
from ottla.protocol.wire import PeerError

Decoder = Callable[[bytes, int], tuple[Any, int]]


def outcome(decoding: Decoder, data: bytes, position: int) -> object:
    """Return what `codec.decode` does with the result of a decoder: the value and the end, or PeerError."""
    try:
        value, end = decoding(data, position)
    except (*codec._MALFORMED, PeerError):
        return PeerError
    return (value, type(value), end) if end <= len(data) else PeerError


def damaged(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randrange(3)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF])
    return bytes(changed[: rng.randrange(len(changed) + 1)] if rng.random() < 0.5 else changed)


@pytest.mark.parametrize("positions", [False, True], ids=["records", "positions"])
def test_plans_and_generated_decoders_agree(positions: bool) -> None:
    rng = random.Random(3)
    for cls in declared_messages().values():
        for version in range(cls.VERSIONS.first, cls.VERSIONS.last + 1):
            flexible = version in cls.FLEXIBLE
            planned = Planner(flexible, version, positions=positions).plan(cls).read
            expected = generated(cls, flexible, version, positions=positions)
            for _ in range(4):
                data = codec.encode(MessageDice(rng).message(cls, version), version, b"head")
                assert outcome(planned, data, 4) == outcome(expected, data, 4) != PeerError, (cls, version, data.hex())
                for _ in range(8):
                    bad = damaged(rng, data)
                    assert outcome(planned, bad, 4) == outcome(expected, bad, 4), (cls, version, bad.hex())


def test_arrays_of_which_some_structs_have_tags() -> None:
    """Many arrays of one plan: with tags in no struct, in all, or in one of them."""
    rng = random.Random(4)
    planned = Planner(True, 17, positions=False).plan(FetchResponse).read
    for _ in range(1000):
        partitions = [PartitionData(partition_index=at, records=b"r") for at in range(rng.randrange(5))]
        for partition in rng.choice([[], [], partitions, partitions[:1], partitions[-1:]]):
            if rng.random() < 0.5:
                partition.current_leader = LeaderIdAndEpoch(leader_id=rng.randrange(9), leader_epoch=3)
            else:
                partition.unknown_tags = {9: b"new"}
        topics = [FetchableTopicResponse(topic_id=bytes(16), partitions=partitions) for _ in range(rng.randrange(3))]
        message = FetchResponse(session_id=7, responses=topics)
        assert planned(codec.encode(message, 17), 0)[0] == message


def test_every_cut_of_a_message_is_refused() -> None:
    partitions = [MetadataResponsePartition(partition_index=at, replica_nodes=[1, 2]) for at in range(3)]
    message = MetadataResponse(topics=[MetadataResponseTopic(name="grüße", partitions=partitions)])
    for version in range(14):
        data = codec.encode(message, version)
        planned = Planner(version in MetadataResponse.FLEXIBLE, version, positions=False).plan(MetadataResponse).read
        for kept in range(len(data)):
            assert outcome(planned, data[:kept], 0) is PeerError


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(enabled: bool) -> None:
    data = codec.encode(MetadataResponse(topics=[MetadataResponseTopic(name="t" * 100) for _ in range(1000)]), 12)
    planned = Planner(True, 12, positions=False).plan(MetadataResponse).read
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        assert planned(data, 0)[1] == len(data)
        assert gc.isenabled() is enabled
        assert outcome(planned, data[:-5], 0) is PeerError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
