"""A broker in a process of its own with listeners of several kinds, and its resources as the system sees them."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from .conftest import command, environment


class SecuredProcess:
    """`ottla serve` with the listeners of `configs`; what it logs goes to a file.

    ports  of the listeners by name
    """

    def __init__(self, directory: Path, configs: Mapping[str, str]) -> None:
        options = [word for name, value in configs.items() for word in ("-o", f"{name}={value}")]
        self._log = directory / "broker.log"
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                command("--data-dir", str(directory / "data"), *options),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(),
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.ports = {name: int(port) for name, port in re.findall(r"(\w+)://127\.0\.0\.1:(\d+)", line)}
        if not self.ports:
            self._process.wait(30)
            raise AssertionError(self.log())

    def log(self) -> str:
        """Return the log of the broker so far."""
        return self._log.read_text(encoding="utf-8")

    def wait_for_log(self, text: str, within_s: float = 20) -> None:
        """Wait until the broker has logged a text."""
        deadline = time.monotonic() + within_s
        while text not in self.log():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        """Resident memory."""
        fields = Path(f"/proc/{self._process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def command_line(self) -> str:
        """The command line, as `ps` shows it."""
        return Path(f"/proc/{self._process.pid}/cmdline").read_text().replace("\0", " ")

    def stop(self) -> None:
        """End the process, well."""
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0, self.log()

    def __enter__(self) -> "SecuredProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate(timeout=30)


ON_LINUX = sys.platform == "linux"
