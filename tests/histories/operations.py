"""Histories: operations of clients with their times and outcomes, as lines of JSON.

Two lines make an operation: its invocation, which is written before the client begins, and its completion. An operation without
a completion, as of a run that was ended, has the outcome "unknown" and ends never. Times are seconds since the start of the
run, on one monotonic clock for all clients.
"""

import json
import math
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

OK: Final = "ok"
FAIL: Final = "fail"
"""The operation has no effect, and never will have one."""
UNKNOWN: Final = "unknown"
NEVER: Final = math.inf
Fields = dict[str, Any]


@dataclass(slots=True)
class Operation:
    """Operation of one client.

    number   position in the history, which identifies it
    request  fields that were known at the invocation
    result   fields that were known at the completion
    """

    number: int
    client: str
    kind: str
    request: Fields
    invoked: float = 0.0
    completed: float = NEVER
    outcome: str = UNKNOWN
    result: Fields = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Return True if the completion is known."""
        return self.completed != NEVER


class Anomaly(NamedTuple):
    """Contradiction between a history and what the cluster guarantees.

    operations  numbers of the operations that contradict each other: the minimal part of the history
    """

    kind: str
    text: str
    operations: tuple[int, ...]


class History:
    """Writer of one history; used by all threads of a workload."""

    def __init__(self, path: Path, begun: float) -> None:
        self._lock = threading.Lock()
        self._file: TextIO = path.open("w", encoding="utf-8")
        self._begun = begun
        self._count = 0
        self.outcomes: dict[str, int] = {}
        """Number of completions by "kind outcome"."""

    def now(self) -> float:
        """Return the seconds since the start of the run."""
        return round(time.monotonic() - self._begun, 6)

    def invoke(self, client: str, kind: str, **request: Any) -> int:
        """Write an invocation; return the number of the operation."""
        with self._lock:
            number = self._count
            self._count += 1
            self._write({"n": number, "at": self.now(), "client": client, "kind": kind, "request": request})
        return number

    def complete(self, number: int, kind: str, outcome: str, **result: Any) -> None:
        """Write a completion."""
        with self._lock:
            key = f"{kind} {outcome}"
            self.outcomes[key] = self.outcomes.get(key, 0) + 1
            self._write({"n": number, "at": self.now(), "outcome": outcome, "result": result})

    def _write(self, line: Mapping[str, Any]) -> None:
        if not self._file.closed:  # a client that did not end in time: its last operations stay unknown
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()


def load(path: Path) -> list[Operation]:
    """Read a history, in the order of the invocations."""
    with path.open(encoding="utf-8") as lines:
        return assemble(json.loads(line) for line in lines if line.endswith("\n"))


def assemble(lines: Iterable[Mapping[str, Any]]) -> list[Operation]:
    """Return the operations of the lines of a history."""
    operations: list[Operation] = []
    for line in lines:
        if "kind" in line:
            assert line["n"] == len(operations), "invocations are missing"
            operations.append(
                Operation(line["n"], line["client"], line["kind"], dict(line["request"]), invoked=line["at"])
            )
        else:
            one = operations[line["n"]]
            assert not one.is_complete, f"operation {one.number} has two completions"
            one.completed, one.outcome, one.result = line["at"], line["outcome"], dict(line["result"])
    return operations


def lines_of(path: Path, numbers: Iterable[int]) -> list[str]:
    """Return the lines of these operations, as they are in the file."""
    chosen = frozenset(numbers)
    with path.open(encoding="utf-8") as lines:
        return [line.rstrip("\n") for line in lines if int(line[5 : line.index(",")]) in chosen]
