"""Batches of delivery states, held against a plain dictionary of offsets."""

import random

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.share.state_batches import StateBatch, merge, merge_into_new

BATCHES = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 40),
    st.integers(0, 12),
    st.sampled_from((0, 2, 3, 4)),
    st.integers(1, 4),
)
WRITES = st.lists(st.tuples(st.lists(BATCHES, max_size=4), st.integers(-1, 45)), max_size=8)


def listed(states: dict[int, tuple[int, int]]) -> list[StateBatch]:
    """Return the states of a dictionary in as few batches as possible."""
    batches: list[StateBatch] = []
    for offset in sorted(states):
        count, state = states[offset]
        if batches and batches[-1].last_offset == offset - 1 and batches[-1].rank == (count, state):
            batches[-1] = batches[-1]._replace(last_offset=offset)
        else:
            batches.append(StateBatch(offset, offset, state, count))
    return batches


@given(WRITES)
def test_a_list_of_batches_is_a_dictionary_of_offsets(writes: list[tuple[list[StateBatch], int]]) -> None:
    batches: list[StateBatch] = []
    states: dict[int, tuple[int, int]] = {}
    start = -1
    for coming, new_start in writes:
        start = max(start, new_start)
        merge(batches, coming, start)
        for batch in coming:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                states[offset] = max(states.get(offset, (-1, -1)), batch.rank)
        states = {offset: rank for offset, rank in states.items() if offset >= start}
        assert batches == listed(states)


@given(st.lists(BATCHES, max_size=6), st.integers(-1, 50), st.randoms(use_true_random=False))
def test_the_order_of_batches_does_not_matter(coming: list[StateBatch], start: int, dice: random.Random) -> None:
    shuffled = list(coming)
    dice.shuffle(shuffled)
    assert merge_into_new(coming, start) == merge_into_new(shuffled, start)


@given(st.lists(BATCHES, max_size=6), st.lists(BATCHES, max_size=6), st.integers(-1, 50))
def test_a_write_that_was_merged_before_has_the_same_result(
    kept: list[StateBatch], coming: list[StateBatch], start: int
) -> None:
    """An update record has the batches of a write as one list; replay takes that in."""
    at_once, by_record = merge_into_new(kept, -1), merge_into_new(kept, -1)
    merge(at_once, coming, start)
    merge(by_record, merge_into_new(coming, start), start)
    assert at_once == by_record


def test_the_example_of_the_docstring_is_merged() -> None:
    batches = [StateBatch(0, 9, 2, 1), StateBatch(15, 20, 0, 1)]
    merge(batches, [StateBatch(7, 16, 0, 2)], -1)
    assert batches == [StateBatch(0, 6, 2, 1), StateBatch(7, 16, 0, 2), StateBatch(17, 20, 0, 1)]
