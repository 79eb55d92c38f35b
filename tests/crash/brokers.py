"""Several brokers in processes of their own, started by `ottla serve --brokers`."""

import os
import re
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .conftest import command

TIMEOUT_S = 60.0  # a broker starts slowly on a busy machine


def wait_until(condition: Callable[[], object], timeout_s: float = TIMEOUT_S) -> float:
    """Wait until a condition holds, and return the seconds that it took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + timeout_s, "the condition does not hold in time"
        time.sleep(0.005)
    return time.monotonic() - begun


def state(pid: int) -> str:
    """Return how the process does, as `ps` says: Z for a zombie, T for a stopped process; empty without such a process."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def is_running(pid: int) -> bool:
    """Return False if the process has ended; a zombie has."""
    return state(pid)[:1] not in ("", "Z")


class BrokerProcesses:
    """`ottla serve --brokers N` with one data directory, each broker on any free port.

    ports  port of each broker by node id
    log    lines on standard error
    """

    def __init__(self, data_dir: Path, *options: str, count: int = 3) -> None:
        self.data_dir = data_dir
        arguments = ("--brokers", str(count), "--listen", "127.0.0.1:0", "--data-dir", str(data_dir), *options)
        self.process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self.announced: list[str] = []
        self._known: set[int] = set()
        """Processes of brokers that were running."""
        self._readers = [
            threading.Thread(target=lines.extend, args=(stream,), daemon=True)
            for lines, stream in ((self.log, self.process.stderr), (self.announced, self.process.stdout))
        ]
        for reader in self._readers:
            reader.start()
        try:
            wait_until(lambda: len(self.announced) >= count or self.process.poll() is not None)
            assert self.process.poll() is None, self.log
        except BaseException:
            self.close()
            raise
        self.ports = {
            int(node): int(port)
            for port, node in re.findall(r"127\.0\.0\.1:(\d+) \(node (\d+),", "".join(self.announced))
        }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def pids(self) -> dict[int, int]:
        """Return the process ids of the running brokers by node id."""
        listing = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(self.process.pid)]
        rows = subprocess.run(listing, capture_output=True, text=True, check=False).stdout
        pids = {int(node): int(pid) for pid, node in re.findall(r"(\d+) .* node\.id=(\d+) ", rows)}
        self._known.update(pids.values())
        return pids

    def live(self) -> set[int]:
        """Return the node ids with a sign of life in the store."""
        return {int(key.rpartition("/")[2]) for key in self.keys("/live/")}

    def keys(self, prefix: str) -> list[str]:
        """Return the keys in the store that begin with a prefix."""
        return [str(row[0]) for row in self.query("SELECT key FROM entries WHERE key GLOB ?", prefix + "*")]

    def query(self, query: str, *parameters: object) -> list[Any]:
        """Return the rows of a query of metadata.db."""
        db = sqlite3.connect(self.data_dir / "metadata.db", timeout=10)
        try:
            return db.execute(query, parameters).fetchall()
        finally:
            db.close()

    def kill(self, node_id: int) -> int:
        """Kill a broker as kill -9 does, and return its process id."""
        pid = self.pids()[node_id]
        os.kill(pid, signal.SIGKILL)
        return pid

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop all brokers cleanly."""
        self.process.send_signal(number)
        assert self.process.wait(TIMEOUT_S) == 0, self.log
        self.close()

    def _runs(self, pid: int) -> bool:
        arguments = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
        return str(self.data_dir) in subprocess.run(arguments, capture_output=True, text=True, check=False).stdout

    def close(self) -> None:
        """End all processes, also after a failed test, with brokers that should have ended with their parent."""
        if self.process.poll() is None:
            self.pids()
        self.process.kill()
        self.process.wait()
        for pid in sorted(self._known):
            if self._runs(pid):
                os.kill(pid, signal.SIGKILL)
        self._known.clear()
        for reader in self._readers:
            reader.join(TIMEOUT_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
