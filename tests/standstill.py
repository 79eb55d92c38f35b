"""Times at which the machine stood still, and the tests that failed through it, run again.

A virtual machine can be paused by its host, and its disk can stop for half a minute. Each test that runs at that moment misses
its deadline, whatever it tests: once six processes failed one test each at the same time. `scripts/test` therefore starts

    python -m tests.standstill FILE

which writes a line for each such time, and passes `-p tests.standstill`: a test that failed meanwhile runs once more. A machine
that is only busy does not count: a quarter of a second of sleep, or a flush of one byte, must take 3 s longer than that.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Final

import pytest
from _pytest.runner import runtestprotocol

_VARIABLE: Final = "TEST_STANDSTILLS"
_EVERY_S: Final = 0.25
_AT_LEAST_S: Final = 3.0
_SETTLING_S: Final = 1.0
"""Time for which a failed test waits for the line of a standstill that has just ended."""


def flush_disk() -> None:
    """Write a byte in the directory of temporary files, and flush it."""
    with tempfile.TemporaryFile() as file:
        file.write(b"0")
        file.flush()
        os.fsync(file.fileno())


def watch(path: str, what: str, act: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
    """Act once, and append a line to the file if that took 3 s more than a moment: what, begin and end on the clock."""
    begun = clock()
    act()
    ended = clock()
    if ended - begun > _AT_LEAST_S:
        with open(path, "a") as file:
            file.write(f"{what} {begun:.3f} {ended:.3f}\n")


def standstills(path: str, since: float) -> list[str]:
    """Return descriptions of what ended after `since`, in seconds of the monotonic clock."""
    with open(path) as file:
        rows = [line.split() for line in file if not line.startswith("again ")]
    return [f"{what} for {float(end) - float(begin):.1f} s" for what, begin, end in rows if float(end) > since]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    """Run a test, and once more if it failed while the machine stood still."""
    path = os.environ.get(_VARIABLE)
    if path is None:
        return None
    begun = time.monotonic()
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(report.failed for report in reports):
        flush_disk()  # ends when the disk does its work again
        time.sleep(_SETTLING_S)
        if standstills(path, begun):
            with open(path, "a") as file:
                file.write(f"again {item.nodeid}\n")
            _forget_failed_fixtures(item)
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _forget_failed_fixtures(item: pytest.Item) -> None:
    """Have the fixtures of the test set up again, and those that failed though they are shared."""
    assert isinstance(item, pytest.Function)
    item._initrequest()  # pytest has no public names for these
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        for definition in definitions:
            if definition.cached_result is not None and definition.cached_result[2] is not None:
                definition.finish(item._request)  # type: ignore[arg-type]


def main(path: str) -> None:
    """Watch the processors and the disk until the process is killed."""

    def repeatedly(what: str, act: Callable[[], None]) -> None:
        while True:
            watch(path, what, act)
            time.sleep(_EVERY_S)

    threading.Thread(target=repeatedly, args=("disk", flush_disk), daemon=True).start()
    repeatedly("processors", lambda: time.sleep(_EVERY_S))


if __name__ == "__main__":
    main(sys.argv[1])
