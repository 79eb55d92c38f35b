"""The controller: changes are compared with the image that they were planned on; preferred leaders are elected in time."""

from collections.abc import Sequence

import pytest
from tests.unit.metadata.cluster_case import ClusterCase

from ottla.metadata import changes
from ottla.metadata.store import Entry


def test_no_election_of_a_broker_that_left_after_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    case = ClusterCase("brokers 1 2 3")
    for line in (
        "start 1 new",
        "start 2 new",
        "start 3 new",
        "wait 100",
        "topic t 2,3",
        "kill 3",
        "revoke 3",
        "wait 100",
    ):
        case.play(line)
    # Broker 3 is back, but not in the ISR, and the leader has gone for longer than its session.
    for line in ("start 3", "wait 100", "kill 2", "revoke 2", "wait 7000", "kill 3"):
        case.play(line)
    assert case.image.topics["t"].partitions[0].leader == -1
    process = case.processes[1]
    held: list[tuple[int, Sequence[Entry]]] = []
    monkeypatch.setattr(process.metadata, "changed", lambda revision, entries: held.append((revision, entries)))
    case.play("revoke 3")
    monkeypatch.undo()
    assert [entry.key for _, entries in held for entry in entries] == ["/live/3"]
    case.lines.clear()
    case.allows_unclean = True

    async def apply_configs() -> None:
        assert process.controller is not None
        process.controller.configs_applied()

    # The end of broker 3 is queued when a task makes the controller plan its unclean election, which is written after it.
    process.metadata.changed(*held[0])
    process.tasks.background(apply_configs(), "configs")
    case.play("wait 100")
    assert case.lines == []


@pytest.mark.parametrize(("is_enabled", "leader"), [(True, 1), (False, 2)])
def test_preferred_leader_in_the_isr_is_elected_at_each_interval(is_enabled: bool, leader: int) -> None:
    """auto.leader.rebalance.enable, leader.imbalance.check.interval.seconds; here the interval is 300 s."""
    case = ClusterCase("brokers 1 2 3")
    case.balances_leaders = is_enabled
    for line in ("start 3 new", "start 1 new", "start 2 new", "wait 100", "topic t 1,2"):
        case.play(line)
    assert case.image.controller_id == 3
    for _ in range(2):
        for line in ("kill 1", "revoke 1", "wait 100", "start 1", "wait 100"):
            case.play(line)
        topic = case.image.topics["t"]
        state = topic.partitions[0]
        assert (state.leader, state.isr) == (2, (2,))
        joined = state._replace(isr=(2, 1), epoch=state.epoch + 1)
        case.shared.change(changes.partition_states(case.image, [(topic, 0, joined)], {}))
        case.play("wait 100")
        assert case.image.topics["t"].partitions[0].leader == 2
        case.play("wait 300000")
        assert case.image.topics["t"].partitions[0].leader == leader
