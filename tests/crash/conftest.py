"""A broker in a process of its own, which can be stopped, killed and started again on the same directory."""

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.conformance.conftest import Wire

Start = Callable[..., "Process"]


class Process:
    """`ottla serve` with one data directory; port 0 is a free one. No file may grow beyond `most_bytes`, if it is given: a disk
    that is full for one file. `most_files` is how many descriptors it may have open."""

    def __init__(
        self,
        data_dir: Path,
        *options: str,
        port: int = 0,
        most_bytes: int | None = None,
        most_files: int | None = None,
    ) -> None:
        self.data_dir = data_dir
        limits = [] if most_bytes is None else [f"ulimit -f {most_bytes // 512}"]
        limits += [] if most_files is None else [f"ulimit -n {most_files}"]
        limit = ["sh", "-c", "; ".join([*limits, 'exec "$@"']), "sh"] if limits else []
        self._process = subprocess.Popen(
            limit
            + command(*_listeners(port, options), "--data-dir", str(data_dir), "--log-level", "warning", *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self.says()
        if "listening on PLAINTEXT://127.0.0.1:" not in line:
            raise AssertionError(f"did not start: {line!r} {self.finish()}")
        self.ports = {name: int(port) for name, port in re.findall(r"(\w+)://127\.0\.0\.1:(\d+)", line)}
        self.port = self.ports["PLAINTEXT"]
        self.wires: list[Wire] = []

    def says(self) -> str:
        """The next line of its standard output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def wire(self, listener: str = "PLAINTEXT") -> Wire:
        """A connection of its own to a listener."""
        wire = Wire(("127.0.0.1", self.ports[listener]), is_kafka=False)
        self.wires.append(wire)
        return wire

    def kill(self) -> str:
        """kill -9; what it wrote to standard error."""
        self._process.kill()
        return self.finish()

    def stop(self) -> str:
        """SIGTERM; what it wrote to standard error. It must end well."""
        self._process.send_signal(signal.SIGTERM)
        error = self.finish()
        assert self._process.returncode == 0, error
        return error

    def finish(self) -> str:
        """Wait for the end; what it wrote to standard error."""
        _, error = self._process.communicate(timeout=30)
        for wire in getattr(self, "wires", ()):
            wire.close()
        return error

    @property
    def runs(self) -> bool:
        return self._process.poll() is None


def _listeners(port: int, options: Sequence[str]) -> list[str]:
    return [] if any(option.startswith("listeners=") for option in options) else ["--listen", f"127.0.0.1:{port}"]


def command(*arguments: str, module: str = "ottla") -> list[str]:
    return [sys.executable, "-m", module, "serve", *arguments]


def environment() -> dict[str, str]:
    """This process's, without Ottla's own variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}


@pytest.fixture
def hang_up() -> Iterator[None]:
    """SIGHUP as in a terminal for the processes that a test starts, also where the tests run under nohup, which ignores it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a broker on this test's directory; at the end it is gone."""
    begun: list[Process] = []

    def starter(*options: str, data_dir: Path | None = None, port: int = 0, **limits: int) -> Process:
        process = Process(data_dir or tmp_path / "data", *options, port=port, **limits)
        begun.append(process)
        return process

    yield starter
    for process in begun:
        if process.runs:
            process.kill()


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """The number of rounds of a test with random input."""
    return 3 * int(request.config.getoption("--soak"))


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    """Chance that can be had again: `--seed` takes what a failed test printed."""
    option = request.config.getoption("--seed")
    seed = random.randrange(1 << 32) if option is None else int(option)
    sys.stdout.write(f"--seed {seed}\n")
    return random.Random(seed)
