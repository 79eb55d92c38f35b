"""The partition of a key: vectors from Java."""

import pytest

from ottla.coordinators.partitions import java_hash, partition_of


@pytest.mark.parametrize(
    ("key", "hashed", "partition"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("group", 98629247, 47),
        ("my-group", -1906497762, 12),
        ("console-consumer-12345", 158455506, 6),
        ("test-group", 627841412, 12),
        ("txn-1", 110810510, 10),
        ("my-transactional-id", -959806496, 46),
        ("polygenelubricants", -2147483648, 0),
        ("grüppe", -1233264812, 12),
        ("消费者", 28099956, 6),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:0", -92966823, 23),
    ],
)
def test_keys_are_hashed_as_java_hashes_strings(key: str, hashed: int, partition: int) -> None:
    assert java_hash(key) == hashed
    assert partition_of(key, 50) == partition


def test_characters_beyond_the_first_plane_count_as_two() -> None:
    assert java_hash("😀") == 0xD83D * 31 + 0xDE00
