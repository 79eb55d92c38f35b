"""The common part of the Python members: their arguments, their output, and the request to stop."""

import json
import sys
import threading
from collections.abc import Iterable
from typing import NamedTuple


class Task(NamedTuple):
    """The arguments of a program."""

    bootstrap: str
    group: str
    topic: str
    instance: str | None
    settings: dict[str, str]


def task() -> Task:
    """Return the arguments of this program."""
    bootstrap, group, topic, instance, *settings = sys.argv[1:]
    return Task(bootstrap, group, topic, instance or None, dict(setting.split("=", 1) for setting in settings))


class Teller:
    """Writes the lines of the contract; `stopped` is set once the member is to stop."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._had: list[int] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        sys.stdin.readline()
        self.stopped.set()

    def has(self, partitions: Iterable[int]) -> None:
        """Tell the partitions, if they are not the same as before."""
        now = sorted(partitions)
        if now != self._had:
            self._had = now
            self._tell({"has": now})

    def read(self, numbers: list[int]) -> None:
        """Tell the numbers of records."""
        if numbers:
            self._tell({"read": numbers})

    def _tell(self, what: dict[str, list[int]]) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()
