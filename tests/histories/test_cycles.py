"""Cycles of a graph: those that are there, and no others."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .cycles import cycles, shortest_cycle

EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30)


def reachable(edges: list[tuple[int, int]], start: int) -> set[int]:
    """Return the nodes that can be reached from a node by one edge or more."""
    reached: set[int] = set()
    work = [start]
    while work:
        node = work.pop()
        for first, second in edges:
            if first == node and second not in reached:
                reached.add(second)
                work.append(second)
    return reached


@given(EDGES)
def test_groups_are_the_nodes_that_reach_each_other(edges: list[tuple[int, int]]) -> None:
    groups = {frozenset(group) for group in cycles(edges)}
    expected = set()
    for node in range(10):
        group = frozenset(other for other in reachable(edges, node) if node in reachable(edges, other)) | {node}
        if len(group) > 1:
            expected.add(group)
    assert groups == expected


@given(EDGES)
def test_a_shortest_cycle_is_a_cycle(edges: list[tuple[int, int]]) -> None:
    for group in cycles(edges):
        cycle = shortest_cycle(edges, group)
        assert len(set(cycle)) == len(cycle)
        assert set(cycle) <= set(group)
        assert all(pair in edges for pair in zip(cycle, [*cycle[1:], cycle[0]], strict=True))


def test_long_chains_need_no_deep_stack() -> None:
    chain = [(number, number + 1) for number in range(20_000)]
    random.Random(1).shuffle(chain)
    assert cycles(chain) == []
    (group,) = cycles([*chain, (20_000, 0)])
    assert len(group) == 20_001


def test_a_group_without_a_cycle_is_refused() -> None:
    with pytest.raises(AssertionError, match="not strongly connected"):
        shortest_cycle([(1, 2)], [1, 2])
