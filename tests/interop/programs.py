"""Programs of clients in tests: the command of one, or the reason to skip the test; and one that is killed at the end."""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from .clients.environments import Environment, Unavailable


def command_of(environment: Environment) -> list[str]:
    """Return the command of a program, which is made if it is not there; skip the test where that is not possible."""
    try:
        return environment.prepare()
    except Unavailable as missing:
        pytest.skip(str(missing))


def interop_only(request: pytest.FixtureRequest, why: str) -> None:
    """Skip a test unless it runs with --interop.

    why  why it does not run with the others
    """
    if not request.config.getoption("--interop"):
        pytest.skip(f"runs with --interop: {why}")


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program whose output nothing reads; it is killed at the end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until(process: subprocess.Popen[bytes], condition: Callable[[], bool], within_s: float = 90) -> None:
    """Wait for an effect of a running program."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert process.poll() is None, "the program has ended"
        assert time.monotonic() < deadline, f"nothing has come of it within {within_s} s"
        time.sleep(0.1)
