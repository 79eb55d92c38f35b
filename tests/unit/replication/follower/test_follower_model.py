"""Replication of one partition in a model with random faults, and bugs that it must find."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.replication.partition_world import LIMITS, World, WrongReplica, run

from ottla.log.log import Log
from ottla.replication.follower.fetching import Fetching
from ottla.replication.partition import Partition

_STEPS = 600
_SEEDS = range(8)
_MODES: list[dict[str, Any]] = [{}, {"flushes": True}, {"is_unclean": True}]


@pytest.mark.parametrize("options", _MODES, ids=["clean", "flushes", "unclean"])
@pytest.mark.parametrize("seed", _SEEDS)
def test_logs_are_equal_after_faults(seed: int, options: dict[str, Any]) -> None:
    world = run(seed, _STEPS, **options)
    assert world.committed or options
    assert world.counts["election"] > 1
    assert world.counts["repeated"] > 1


def find(attempts: int = 120, **options: Any) -> World | None:
    """Return None once a seed finds something wrong."""
    world: World | None = None
    for seed in range(attempts):
        try:
            world = run(seed, _STEPS, **options)
        except WrongReplica:
            return None
    return world


@pytest.mark.replaces_code
def test_the_model_finds_a_response_of_an_older_fetch_that_counts() -> None:
    class Careless(Fetching):
        def on_response(self, request: Any, response: Any, now_ms: int) -> Any:
            if self._sent is not None:
                request = self._sent
            return super().on_response(request, response, now_ms)

        @staticmethod
        def _counts(partition: Any, asked: Any) -> bool:
            return True

    assert find(new_fetching=lambda node, epoch: Careless(node, epoch, LIMITS)) is None


@pytest.mark.replaces_code
def test_the_model_finds_truncation_without_a_look_at_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader's end offset is only valid for its own epoch: the follower's batches of other epochs must go, too."""

    def truncation_point(log: Log, epoch: int, end_offset: int) -> int:
        del epoch
        return max(min(log.end_offset, end_offset), log.start_offset)

    monkeypatch.setattr(Log, "truncation_point", truncation_point)
    assert find() is None


@pytest.mark.replaces_code
def test_the_model_finds_a_fetch_without_the_last_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "divergence", lambda log, last_epoch, offset: None)
    assert find() is None


@pytest.mark.replaces_code
def test_the_model_finds_a_fetch_before_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    def when_settled(partition: Partition, callback: Callable[[], None]) -> None:
        partition.advance()
        callback()

    monkeypatch.setattr(Partition, "when_settled", when_settled)
    assert find(flushes=True) is None
