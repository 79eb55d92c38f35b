"""The arithmetic of offsets, without a broker."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.topics import EARLIEST, LATEST, FoundOffset, TopicPartition
from ottla.spark.offsets import (
    Boundary,
    InvalidOption,
    OffsetRange,
    Positions,
    check_order,
    check_times,
    ending_boundary,
    from_json,
    limit_bytes,
    limit_rows,
    offset_lookups,
    parse_positions,
    ranges,
    resolve,
    split,
    starting_boundary,
    to_json,
)

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 10)

positions = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["t", "u", "ü.-"]), st.integers(0, 20)), st.integers(0, 2**62), max_size=8
)


def test_positions_are_json_in_the_shape_of_spark_s_own_source() -> None:
    assert to_json({C: 5, B: 2, A: 1}) == {"t": {"0": 1, "1": 2}, "u": {"10": 5}}
    assert parse_positions("{}", "o") == parse_positions('{"t": {}}', "o") == {}  # of a pattern that no topic has
    assert parse_positions('{"t": {"0": 23, "1": -2}, "u": {"10": -1}}', "o") == {A: 23, B: EARLIEST, C: LATEST}


@given(positions)
def test_positions_survive_a_checkpoint(saved: Positions) -> None:
    assert from_json(to_json(saved)) == saved


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"t": 1}', '{"t": {"x": 1}}', '{"t": {"0": -3}}', '{"t": {"0": "1"}}', '{"t": {"0": true}}'],
)
def test_malformed_positions_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match=r'^startingOffsets must look like \{"topic"'):
        parse_positions(text, "startingOffsets")


def test_times_come_before_offsets() -> None:
    options = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"t": {"0": 7}}',
        "startingTimestamp": "1000",
    }
    assert starting_boundary(options, stream=True) == Boundary("startingTimestamp", time=1000)
    del options["startingTimestamp"]
    assert starting_boundary(options, stream=True) == Boundary("startingOffsetsByTimestamp", times={A: 7})
    del options["startingOffsetsByTimestamp"]
    assert starting_boundary(options, stream=True) == Boundary("startingOffsets", time=EARLIEST)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingTimestamp": "yesterday"}, "startingTimestamp must be milliseconds"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "since the epoch, not negative"),
        ({"startingOffsets": "first"}, "startingOffsets must be earliest, latest or JSON"),
        ({"startingOffsets": "latest"}, "makes a batch read empty"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "cannot be -1"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "must be error or latest, not guess"),
    ],
)
def test_starts_that_a_batch_cannot_have(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        starting_boundary(options, stream=False)


@pytest.mark.parametrize("text", ["earliest", '{"t": {"0": -2}}'])
def test_ends_that_a_batch_cannot_have(text: str) -> None:
    with pytest.raises(InvalidOption, match="endingOffsets cannot be earliest"):
        ending_boundary({"endingOffsets": text})


def test_json_must_name_every_partition_and_no_other() -> None:
    boundary = Boundary("startingOffsets", offsets={A: 5, B: LATEST})
    assert offset_lookups(boundary, [A, B]) == {B: LATEST}
    with pytest.raises(InvalidOption, match="must name every partition, also u-10"):
        offset_lookups(boundary, [A, B, C])
    misspelt = Boundary("startingOffsets", offsets={TopicPartition("ordres", 0): 5})
    with pytest.raises(
        InvalidOption, match=r"names topic ordres, which this query does not read; did you mean orders\?"
    ):
        offset_lookups(misspelt, [TopicPartition("orders", 0), TopicPartition("t", 0)])
    with pytest.raises(InvalidOption, match="names t-1, which this query does not read"):
        offset_lookups(boundary, [A])
    assert offset_lookups(Boundary("x", time=EARLIEST), [A, C]) == {A: EARLIEST, C: EARLIEST}
    assert offset_lookups(Boundary("x", times={A: 9}), [A]) == {A: 9}


def test_boundaries_are_resolved_to_offsets() -> None:
    boundary = Boundary("startingOffsets", offsets={A: 5, B: LATEST})
    assert resolve(boundary, [A, B], {B: FoundOffset(9, -1)}, {}) == {A: 5, B: 9}
    by_time = Boundary("startingTimestamp", time=1000, or_latest=True)
    nothing = {A: FoundOffset(-1, -1), B: FoundOffset(3, 1000)}
    assert resolve(by_time, [A, B], nothing, {A: FoundOffset(7, -1)}) == {A: 7, B: 3}
    with pytest.raises(InvalidOption, match="t-0 has no record at or after that time"):
        resolve(by_time._replace(or_latest=False), [A, B], nothing, {})


def test_a_read_that_ends_before_it_starts() -> None:
    check_order({A: 3, B: 0}, {A: 3, B: 1}, "startingOffsets", "endingOffsets")
    with pytest.raises(InvalidOption, match=r"t-1 would be read from offset 2 \(startingOffsets\) to 1 \(endingTimest"):
        check_order({A: 3, B: 2}, {A: 3, B: 1}, "startingOffsets", "endingTimestamp")


def test_times_in_the_wrong_order() -> None:
    start, end = Boundary("startingTimestamp", time=5), Boundary("endingTimestamp", time=5)
    check_times(start, end)
    check_times(start, Boundary("endingOffsets", time=LATEST))
    check_times(Boundary("startingOffsets", time=EARLIEST), end)
    with pytest.raises(InvalidOption, match=r"startingTimestamp \(5\) is later than endingTimestamp \(4\)"):
        check_times(start, end._replace(time=4))
    start, end = (Boundary(f"{name}OffsetsByTimestamp", times={A: 5, B: 5}) for name in ("starting", "ending"))
    check_times(start, end)
    check_times(start, Boundary("endingTimestamp", time=4))
    with pytest.raises(InvalidOption, match=r"of t-1 \(5\) is later than its endingOffsetsByTimestamp \(4\)"):
        check_times(start, end._replace(times={A: 5, B: 4}))


def test_a_limit_is_shared_in_proportion() -> None:
    assert limit_rows({A: 0, B: 0}, {A: 30, B: 10}, 20) == {A: 15, B: 5}
    assert limit_rows({A: 0, B: 5}, {A: 1000, B: 6}, 10) == {A: 9, B: 6}
    assert limit_rows({A: 0}, {A: 5}, 10) == {A: 5}


@given(st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 50), st.integers(0, 10_000)), max_size=8), st.data())
def test_a_limit_moves_every_partition_and_none_too_far(
    bounds: dict[int, tuple[int, int]], data: st.DataObject
) -> None:
    rows = data.draw(st.integers(1, 20_000))
    start = {TopicPartition("t", number): begin for number, (begin, _) in bounds.items()}
    end = {TopicPartition("t", number): begin + size for number, (begin, size) in bounds.items()}
    held = limit_rows(start, end, rows)
    assert held.keys() == end.keys()
    for partition, offset in held.items():
        assert start[partition] <= offset <= end[partition]
        assert offset > start[partition] or end[partition] == start[partition]
    assert sum(held.values()) - sum(start.values()) <= rows + len(end)


def test_a_limit_of_bytes() -> None:
    sizes = {A: 100.0, B: 50.0}
    assert limit_bytes({A: 0, B: 0}, {A: 100, B: 100}, sizes, 15_000) == {A: 100, B: 100}
    assert limit_bytes({A: 0, B: 0}, {A: 100, B: 100}, sizes, 7500) == {A: 50, B: 50}
    assert limit_bytes({A: 9, B: 0}, {A: 10, B: 10_000}, sizes, 1) == {A: 10, B: 1}  # each moves
    assert limit_bytes({A: 0, B: 0}, {A: 40, B: 10}, {A: 100.0}, 2000) == {A: 20, B: 10}  # nothing is known of B


def test_ranges_and_losses() -> None:
    assert ranges({A: 1, B: 4}, {A: 3, B: 4, C: 2}) == ([OffsetRange(A, 1, 3), OffsetRange(C, 0, 2)], [])
    read_ranges, lost = ranges({A: 5, B: 4}, {A: 2})
    assert read_ranges == []
    assert lost == [
        "t-1 no longer exists (read up to offset 4)",
        "the offset of t-0 went back from 5 to 2: the topic may have been recreated",
    ]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=6), st.integers(1, 40))
def test_splitting_covers_every_offset_once(sizes: list[int], least: int) -> None:
    whole = [OffsetRange(TopicPartition("t", number), 7, 7 + size) for number, size in enumerate(sizes)]
    pieces = split(whole, least)
    assert all(piece.end > piece.start for piece in pieces)
    for one in whole:
        own = [piece for piece in pieces if piece.partition == one.partition]
        assert (own[0].start, own[-1].end) == (one.start, one.end)
        assert all(left.end == right.start for left, right in pairwise(own))


def test_pieces_have_a_largest_size() -> None:
    assert split([OffsetRange(A, 0, 10), OffsetRange(B, 0, 3)], 1, 4) == [
        OffsetRange(A, 0, 3),
        OffsetRange(A, 3, 6),
        OffsetRange(A, 6, 10),
        OffsetRange(B, 0, 3),
    ]
    assert len(split([OffsetRange(A, 0, 100)], 50, 10)) == 50


def test_small_ranges_do_not_affect_the_split_of_large_ones() -> None:
    pieces = split([OffsetRange(A, 0, 1000), OffsetRange(B, 0, 10), OffsetRange(C, 0, 10)], 4)
    assert [(piece.partition, piece.end - piece.start) for piece in pieces] == [(A, 500), (A, 500), (B, 10), (C, 10)]


def test_splitting_gives_the_larger_more() -> None:
    pieces = split([OffsetRange(A, 0, 300), OffsetRange(B, 0, 100)], 4)
    assert [piece.partition for piece in pieces] == [A, A, A, B]
