"""Leases of brokers on one machine end by time in which their judge runs."""

import asyncio
import io
from types import SimpleNamespace

import pytest

from ottla.broker.cluster.lease_judge import LOOK_MS, LeaseJudge
from ottla.broker.supervisor import _Supervisor


class Case:
    def __init__(self) -> None:
        self.judge = LeaseJudge()
        self.now_ms = 5_000
        self.over: list[tuple[int, int]] = []

    def run(self, ms: int, *, renews: int = 0) -> None:
        """Look for a time, while a broker renews its lease 17 every two seconds."""
        for passed in range(0, ms, LOOK_MS):
            if renews and passed % 2_000 == 0:
                self.judge.note_renewal(renews, 17, 9_000)
            self.now_ms += LOOK_MS
            self.over += self.judge.look(self.now_ms)


def test_a_renewed_lease_goes_on() -> None:
    case = Case()
    case.run(60_000, renews=1)
    assert case.over == []


def test_a_lease_that_is_not_renewed_ends_once() -> None:
    case = Case()
    case.judge.note_renewal(1, 17, 9_000)
    case.judge.note_renewal(2, 18, 9_000)
    case.run(8_000, renews=2)
    assert case.over == []
    case.run(2_000, renews=2)
    assert case.over == [(1, 17)]
    case.run(20_000, renews=2)
    assert case.over == [(1, 17)]


def test_a_stall_of_the_judge_ends_no_lease() -> None:
    case = Case()
    case.judge.note_renewal(1, 17, 9_000)
    case.run(2_000)
    for _ in range(5):
        case.now_ms += 3_600_000
        case.run(1_000)
    assert case.over == []
    case.run(9_000)
    assert case.over == [(1, 17)]


def test_a_released_lease_does_not_end() -> None:
    case = Case()
    case.judge.note_renewal(1, 17, 9_000)
    case.judge.note_renewal(2, 18, 9_000)
    case.judge.note_release(1, 17)
    case.judge.note_release(2)
    case.run(30_000)
    assert case.over == []


def test_the_release_of_an_earlier_lease_does_not_release_the_next_one() -> None:
    case = Case()
    case.judge.note_renewal(1, 17, 9_000)
    case.judge.note_renewal(1, 19, 9_000)
    case.judge.note_release(1, 17)
    case.run(30_000)
    assert case.over == [(1, 19)]


def test_a_broker_that_cannot_be_fenced_does_not_end_the_judging_of_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure in the periodic look would have ended it for good, without a line."""
    fenced: list[int] = []

    async def fence(node: int, _: int) -> None:
        fenced.append(node)
        if node == 1:
            raise OSError(5, "Input/output error")

    async def main() -> None:
        supervisor = _Supervisor([], SimpleNamespace(), -1, io.BytesIO())  # type: ignore[arg-type]
        monkeypatch.setattr(supervisor, "_fence", fence)
        monkeypatch.setattr("ottla.broker.supervisor.LOOK_MS", 1)
        looks = [[(1, 11), (2, 12)], [(1, 13)], [(2, 14)]]
        monkeypatch.setattr(supervisor._judge, "look", lambda _: looks.pop(0) if looks else [])
        judging = asyncio.get_running_loop().create_task(supervisor._judge_leases())
        async with asyncio.timeout(20):
            while len(fenced) < 4:
                await asyncio.sleep(0.001)
        judging.cancel()

    asyncio.run(main())
    assert fenced == [1, 2, 1, 2]
    assert caplog.messages == ["node 1 cannot be fenced"] * 2
