"""Work in pieces, background thread and watchdog: nothing holds the event loop for long."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.environment.watchdog import Watchdog
from ottla.environment.workers import ThreadWorker
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Pieces, Scheduler


class Turns:
    """Timers whose calls are made when the test says so."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        nothing: Any = None
        self.errors: list[str] = []
        self.tasks = Scheduler(nothing, self, lambda name, error: self.errors.append(f"{name}: {error!r}"))

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        assert delay_ms == 0
        self.due.append(callback)
        return SimpleNamespace(cancel=lambda: None)

    def turn(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()

    def finish(self) -> None:
        while self.due:
            self.turn()


def run(turns: Turns, pieces: Pieces, done: Callable[[], object]) -> None:
    """Do work in pieces, then call `done`."""
    answer = turns.tasks.run_pieces(pieces, "work")
    if isinstance(answer, Deferred):
        answer.listen(lambda _: done())
    else:
        done()


def test_short_work_is_over_at_once() -> None:
    done: list[str] = []
    turns = Turns()
    run(turns, iter(()), lambda: done.append("done"))
    assert (done, turns.due) == (["done"], [])


def test_long_work_gives_others_a_turn_after_each_piece() -> None:
    turns, log = Turns(), [""]

    def pieces() -> Pieces:
        for number in range(3):
            log.append(f"piece {number}")
            yield None

    run(turns, pieces(), lambda: log.append("done"))
    for _ in range(10):
        turns.due.append(lambda: log.append("other"))
        turns.turn()
    assert [line for line in log[1:] if line != "other"] == ["piece 0", "piece 1", "piece 2", "done"]
    assert all("other" in log[log.index(f"piece {number}") : log.index(f"piece {number + 1}")] for number in (0, 1))


def test_work_waits_for_what_it_yields() -> None:
    turns, done = Turns(), list[str]()
    written: Deferred[None] = Deferred(turns.tasks)

    def pieces() -> Pieces:
        yield written

    run(turns, pieces(), lambda: done.append("done"))
    turns.finish()
    assert done == []
    written.complete(None)
    turns.finish()
    assert done == ["done"]


@pytest.mark.parametrize("count", [0, 1])
def test_the_end_of_failed_work_is_called(count: int) -> None:
    turns, done = Turns(), list[str]()

    def pieces() -> Pieces:
        for _ in range(count):
            yield None
        raise ZeroDivisionError

    run(turns, pieces(), lambda: done.append("done"))
    turns.finish()
    assert done == ["done"]
    assert turns.errors == ["work: ZeroDivisionError()"]


def test_no_piece_is_begun_after_the_end() -> None:
    turns, log = Turns(), list[int]()

    def pieces() -> Iterator[None]:
        for number in range(3):
            log.append(number)
            yield

    run(turns, pieces(), lambda: None)
    turns.tasks.end_pieces()
    run(turns, pieces(), lambda: None)
    turns.finish()
    assert (log, turns.errors) == ([0], [])


def test_background_work_keeps_its_order_and_answers_on_the_loop() -> None:
    done: list[tuple[int, bool]] = []

    async def work() -> None:
        loop_thread = threading.get_ident()
        background = ThreadWorker(asyncio.get_running_loop(), "test", 1)
        over = asyncio.Event()

        def finished(number: int) -> None:
            done.append((number, threading.get_ident() == loop_thread))
            if number == 9:
                over.set()

        for number in range(10):
            background.run(lambda number=number: number, finished, pytest.fail)  # type: ignore[misc]
        await over.wait()
        background.close()

    asyncio.run(work())
    assert done == [(number, True) for number in range(10)]


def test_background_work_that_fails_is_reported_and_does_not_stop_what_follows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[str] = []

    async def work() -> None:
        background = ThreadWorker(asyncio.get_running_loop(), "test", 1)
        over = asyncio.Event()
        background.run(lambda: 1 // 0, lambda _: pytest.fail("it has no result"), lambda: events.append("failed"))

        def done(result: str) -> None:
            events.append(result)
            over.set()

        background.run(lambda: "done", done, pytest.fail)
        await over.wait()
        background.close()

    asyncio.run(work())
    assert events == ["failed", "done"]
    assert "ZeroDivisionError" in caplog.text


def test_a_close_does_not_wait_for_work_that_has_not_begun() -> None:
    begun: list[int] = []

    async def work() -> None:
        background = ThreadWorker(asyncio.get_running_loop(), "test", 1)
        gate, started = threading.Event(), threading.Event()

        def wait() -> None:
            started.set()
            gate.wait(10)

        background.run(wait, pytest.fail, pytest.fail)
        for number in range(100):
            background.run(lambda number=number: begun.append(number), pytest.fail, pytest.fail)  # type: ignore[misc]
        started.wait(10)
        threading.Timer(0.05, gate.set).start()
        background.close(cancel=True)

    asyncio.run(work())
    assert begun == []


def hold_the_loop() -> None:
    time.sleep(0.2)


def test_the_watchdog_names_the_code_that_blocks_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ottla.broker")

    async def work() -> float:
        watchdog = Watchdog(asyncio.get_running_loop())
        watchdog.start()
        await asyncio.sleep(0.05)
        for _ in range(20):  # on a busy machine the watchdog may not run while the loop is held
            hold_the_loop()
            await asyncio.sleep(0.05)
            if is_named():
                break
        watchdog.stop()
        return watchdog.longest_ms

    def is_named() -> bool:
        """Return True if a report names the function: brokers of other tests, in threads of this process, log here too."""
        return any(
            "the event loop was held" in line and "hold_the_loop (test_event_loop.py:" in line
            for line in caplog.messages
        )

    assert asyncio.run(work()) >= 150
    assert is_named()
