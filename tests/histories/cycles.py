"""Strongly connected components of a graph of transactions: the cycles in which they depend on each other."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

N = TypeVar("N", bound=Hashable)


def cycles(edges: Iterable[tuple[N, N]]) -> list[list[N]]:
    """Return the groups of two or more nodes in which each can be reached from each, by Tarjan's algorithm without recursion.

    The order of the result is that of the edges, and each group is in the order in which its nodes were reached.
    """
    following: dict[N, dict[N, None]] = defaultdict(dict)
    for first, second in edges:
        following[first][second] = None
    order: dict[N, int] = {}
    lowest: dict[N, int] = {}
    path: list[N] = []
    on_path: set[N] = set()
    groups: list[list[N]] = []

    def enter(node: N) -> None:
        order[node] = lowest[node] = len(order)
        path.append(node)
        on_path.add(node)
        work.append((node, iter(following.get(node, ()))))

    for root in list(following):
        if root in order:
            continue
        work: list[tuple[N, Any]] = []
        enter(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in order:
                    enter(other)
                    break
                if other in on_path:
                    lowest[node] = min(lowest[node], order[other])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == order[node]:
                    start = path.index(node)
                    group, path[start:] = path[start:], []
                    on_path.difference_update(group)
                    if len(group) > 1:
                        groups.append(group)
    return groups


def shortest_cycle(edges: Iterable[tuple[N, N]], group: Iterable[N]) -> list[N]:
    """Return a shortest cycle through the first node of a strongly connected group."""
    members = list(group)
    inside = frozenset(members)
    following: dict[N, list[N]] = defaultdict(list)
    for first, second in edges:
        if first in inside and second in inside:
            following[first].append(second)
    start = members[0]
    before: dict[N, N] = {}
    queue = [start]
    for node in queue:
        for other in following[node]:
            if other == start:
                cycle = [node]
                while cycle[-1] != start:
                    cycle.append(before[cycle[-1]])
                return cycle[::-1]
            if other not in before:
                before[other] = node
                queue.append(other)
    raise AssertionError("the group is not strongly connected")
