"""A broker in a process of its own, which measures the CPU time of each pass of its event loop and its memory.

A pass is everything between two polls: callbacks, timers and the garbage collector. Commands are lines on stdin, answers are
lines of JSON on stdout:

    reset     begin a new measurement
    measure   longest pass since then (the present one counts), CPU time of the loop, and memory, in ms and MB
"""

import asyncio
import json
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from ottla.broker.config import broker_config
from ottla.broker.lifecycle import BrokerServer
from ottla.broker.process import serve

DENYING: Final = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
"""Configs of a broker that permits nothing to its clients."""
_STATUS: Final = Path("/proc/self/status")


class TimedSelector(selectors.DefaultSelector):
    """Selector that measures the CPU time between two polls."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0.0
        self.begun = time.thread_time()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Poll, after the end of a pass."""
        self.longest = max(self.longest, time.thread_time() - self.begun)
        ready = super().select(timeout)
        self.begun = time.thread_time()
        return ready


class Cost(NamedTuple):
    """What requests have cost: longest pass and CPU time of the loop in ms, additional memory at the peak in MB."""

    longest_ms: float
    cpu_ms: float
    peak_mb: float


def _memory(name: str) -> float:
    return next(int(line.split()[1]) / 1024 for line in _STATUS.read_text().splitlines() if line.startswith(name))


def _answer_commands(selector: TimedSelector, thread: int) -> None:
    clock = time.pthread_getcpuclockid(thread)
    at_reset = memory = 0.0
    for line in sys.stdin:
        now = time.clock_gettime(clock)
        if line == "reset\n":
            Path("/proc/self/clear_refs").write_text("5")
            memory, at_reset = _memory("VmRSS"), now
            selector.longest = 0.0
            selector.begun = now
        longest = max(selector.longest, now - selector.begun)
        cost = Cost(1000 * longest, 1000 * (now - at_reset), max(_memory("VmHWM") - memory, 0.0))
        sys.stdout.write(json.dumps(cost) + "\n")
        sys.stdout.flush()


def main(options: list[str]) -> None:
    """Run a broker with these configs until stdin ends."""
    selector = TimedSelector()
    thread = threading.get_ident()

    def announce(server: BrokerServer) -> None:
        sys.stdout.write(json.dumps(server.broker.listeners.bound[0][1]) + "\n")
        sys.stdout.flush()
        threading.Thread(target=_answer_commands, args=(selector, thread), daemon=True).start()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(serve(broker_config(options=options), announce))


class NoAnswer(Exception):
    """The broker does not answer a command in time: a pass of its loop has not ended."""


class MeasuredBroker:
    """The process, for the duration of a `with` block."""

    def __init__(self, configs: Mapping[str, str] | None = None) -> None:
        self._directory = tempfile.TemporaryDirectory()
        options = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": self._directory.name, **(configs or {})}
        self._log = Path(self._directory.name, "broker.stderr").open("w")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.measured_broker", *(f"{k}={v}" for k, v in options.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        host, port = self._read()
        self.address: tuple[str, int] = (host, port)

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise NoAnswer(Path(self._log.name).read_text()[-2000:])
        return json.loads(line)

    def _ask(self, command: str, timeout_s: float) -> Cost:
        assert self._process.stdin is not None
        guard = threading.Timer(timeout_s, self._process.kill)
        guard.start()
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
            return Cost(*self._read())
        except OSError as cause:
            raise NoAnswer(str(cause)) from None
        finally:
            guard.cancel()

    def reset(self) -> None:
        """Begin a new measurement."""
        self._ask("reset", 60)

    def measure(self, timeout_s: float = 60) -> Cost:
        """Return the cost since `reset`. Raises NoAnswer, and ends the process, after `timeout_s`."""
        return self._ask("measure", timeout_s)

    @property
    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


if __name__ == "__main__":
    main(sys.argv[1:])
