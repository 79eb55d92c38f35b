"""Listeners of metadata changes and their order, which does not depend on the requests of clients."""

from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.coordination.coordinators import Coordination
from ottla.broker.lifecycle import BrokerServer
from ottla.broker.metrics.cluster import ElectionCounts
from ottla.broker.metrics.collection import BrokerMetrics
from ottla.broker.metrics.selection import TopicSelection
from ottla.broker.share_partitions.partitions import SharePartitions
from ottla.metadata.image import Delta

from .test_log_directories import Machine

FIRST_USES: dict[str, Callable[[BrokerServer], object]] = {
    "groups": lambda server: server.broker.coordination,
    "share groups": lambda server: server.broker.share_partitions,
    "metrics": lambda server: BrokerMetrics(server, lambda: 0, TopicSelection()),
}
ACTING = (Coordination, SharePartitions, ElectionCounts)
"""Parts that are created at their first use, in the order in which they act."""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Machine(tmp_path) as machine:
        yield machine


@pytest.mark.replaces_code
@pytest.mark.parametrize("uses", list(permutations(FIRST_USES)), ids="-".join)
def test_the_order_does_not_depend_on_what_was_used_first(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, uses: tuple[str, ...]
) -> None:
    acted: list[type] = []

    def noting(part: Any) -> Callable[[Any, Delta], object]:
        original = part.apply

        def apply(self: Any, delta: Delta) -> object:
            acted.append(part)
            return original(self, delta)

        return apply

    for part in ACTING:
        monkeypatch.setattr(part, "apply", noting(part))
    machine.create("before")
    listeners = machine.broker.metadata._listeners
    for use in uses:
        FIRST_USES[use](machine.server)
        machine.create(use.replace(" ", "-"))
    acted.clear()
    machine.create("after")
    assert machine.broker.metadata._listeners is listeners
    assert acted == list(ACTING)


def test_a_topic_can_be_written_to_when_the_last_listener_has_acted(machine: Machine) -> None:
    seen: list[object] = []
    machine.server.observer = lambda delta: seen.extend(
        machine.broker.replicas.find(topic.name, 0) for topic in delta.changed
    )
    machine.create("t")
    assert seen == [machine.broker.replicas.find("t", 0)]
    assert seen != [None]
