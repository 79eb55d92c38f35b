"""The order in which the controller writes the next states of the partitions of a failed broker."""

import re

from tests.unit.metadata.cluster_case import ClusterCase

PARTITIONS = 400
"""A quarter of them is led by the broker that fails."""
CHANGE = 120
"""A change has at most so many partitions, sorted by their indexes in the transcript."""


def test_partitions_without_a_leader_come_before_those_that_lack_a_follower() -> None:
    case = ClusterCase("brokers 1 2 3")
    for node in (1, 2, 3):
        case.play(f"start {node}")
    case.play("topic t " + " ".join("3,1,2" if index % 4 == 3 else "1,3,2" for index in range(PARTITIONS)))
    case.play("wait 1000")
    case.lines.clear()
    case.play("kill 3")
    case.play("wait 10000")
    states = [re.search(r"t-(\d+): leader (\d)", line) for line in case.lines]
    order = [int(state[1]) % 4 == 3 for state in states if state is not None]
    assert len(order) == PARTITIONS
    assert not any(order[CHANGE:])
    assert all(partition.leader in (1, 2) for partition in case.image.topics["t"].partitions)
