"""Readers of many messages of a kind: the same as `decode`, and what they remember does not show."""

import pytest

from ottla.protocol.codec import decode, encode, reader
from ottla.protocol.messages.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.wire import PeerError

KEYS = [
    OffsetCommitKey(group=group, topic=topic, partition=partition)
    for partition in (0, 7, -1)
    for group, topic in (("g", "topic"), ("gt", "opic"), ("", ""), ("grüppe", "t"))
]


def test_keys_that_were_seen_before() -> None:
    read = reader(OffsetCommitKey, 0)
    for key in KEYS + KEYS:
        data = encode(key, 0, b"\x00\x01")
        assert read(data, 2) == decode(OffsetCommitKey, 0, data, 2)[0] == key


def test_each_is_an_object_of_its_own() -> None:
    read, data = reader(OffsetCommitKey, 0), encode(KEYS[0], 0)
    first, second = read(data, 0), read(data, 0)
    first.group = "another"
    assert (second.group, read(data, 0).group) == ("g", "g")


@pytest.mark.parametrize("kept", range(8))
def test_keys_that_are_cut_off(kept: int) -> None:
    read, data = reader(OffsetCommitKey, 0), encode(KEYS[0], 0)
    assert read(data, 0) == KEYS[0]
    with pytest.raises(PeerError, match="OffsetCommitKey"):
        read(data[:kept], 0)


def test_what_follows_a_message_does_not_matter() -> None:
    read, data = reader(OffsetCommitKey, 0), encode(KEYS[1], 0)
    for more in (b"", b"\x00\x00\x00\x05", b"more", b""):
        assert read(data + more, 0) == KEYS[1]


@pytest.mark.parametrize("version", range(5))
def test_values(version: int) -> None:
    read = reader(OffsetCommitValue, version)
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9, topic_id=b"i" * 16)
    data = encode(value, version)
    assert read(data, 0) == decode(OffsetCommitValue, version, data)[0]
    with pytest.raises(PeerError, match="OffsetCommitValue"):
        read(data[:-1], 0)


def test_unknown_tags_of_a_value_are_kept() -> None:
    value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=9, topic_id=b"i" * 16)
    value.unknown_tags = {3: b"later"}
    data = encode(value, 4)
    assert reader(OffsetCommitValue, 4)(data, 0) == decode(OffsetCommitValue, 4, data)[0] == value


def test_text_that_is_not_utf_8_is_replaced() -> None:
    data = b"\x00\x01\xff" + b"\x00\x01t" + bytes(4)
    assert reader(OffsetCommitKey, 0)(data, 0) == OffsetCommitKey(
        group="\N{REPLACEMENT CHARACTER}", topic="t", partition=0
    )
