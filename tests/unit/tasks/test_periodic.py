"""Work that is done again and again: one run that fails does not end it, and is logged once."""

import logging

import pytest

from ottla.tasks.periodic import PAUSED, Periodic
from ottla.tasks.scheduler import Scheduler
from tests.unit.broker.upkeep.test_maintenance import World


class Work:
    """Counts its runs; raises when it is told to, else returns what it is given."""

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.world = World()
        self.fails = False
        self.answer: int | None = None
        self.periodic = Periodic("counting", self, 100, self.world)

    def __call__(self) -> int | None:
        self.runs.append(self.world.now)
        if self.fails:
            raise RuntimeError("no")
        return self.answer


def test_periodic_work_runs_again_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    work = Work()
    work.periodic.run_in(10)
    work.world.pass_time(150)
    assert work.runs == [10, 110]
    work.fails = True
    work.world.pass_time(300)
    assert work.runs == [10, 110, 210, 310, 410]
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.ERROR, "counting failed and will be retried")
    ]
    assert "RuntimeError: no" in caplog.text
    work.fails = False
    work.world.pass_time(100)
    work.fails = True
    work.world.pass_time(100)
    assert len(caplog.records) == 2  # it had worked in between


def test_a_run_says_when_the_next_one_is_due() -> None:
    work = Work()
    work.answer = 5
    work.periodic.run_in(0)
    work.world.pass_time(11)
    assert work.runs == [0, 5, 10]
    work.answer = PAUSED
    work.world.pass_time(1000)
    assert work.runs == [0, 5, 10, 15]
    assert not work.periodic.is_set
    work.periodic.run_in(7)
    work.periodic.run_in(9)  # the last word
    work.world.pass_time(100)
    assert work.runs == [0, 5, 10, 15, 1020]


def test_nothing_runs_after_the_end() -> None:
    work = Work()
    work.periodic.run_in(10)
    work.periodic.close()
    work.periodic.run_in(10)
    work.world.pass_time(100)
    assert work.runs == []
    assert work.world.due == []


def test_the_next_run_follows_the_end_of_a_run_that_waits(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    tasks = Scheduler(world, world)
    runs: list[str] = []

    async def work() -> int:
        runs.append(f"begun at {world.now}")
        await tasks.sleep(40)
        if len(runs) == 1:
            raise RuntimeError("no")
        runs.append(f"done at {world.now}")
        return 5

    periodic = Periodic("counting", lambda: tasks.start(work()), 100, world)
    periodic.run_in(10)
    world.pass_time(60)
    assert caplog.messages == ["counting failed and will be retried"]
    world.pass_time(175)
    assert runs == ["begun at 10", "begun at 150", "done at 190", "begun at 195", "done at 235"]


def test_a_close_ends_a_run_that_waits() -> None:
    world = World()
    tasks = Scheduler(world, world)
    runs: list[str] = []

    async def work() -> None:
        runs.append("begun")
        await tasks.sleep(40)
        runs.append("done")

    periodic = Periodic("counting", lambda: tasks.start(work()), 100, world)
    periodic.run_in(10)
    world.pass_time(20)
    periodic.close()
    assert world.due == []
    world.pass_time(1000)
    assert runs == ["begun"]
