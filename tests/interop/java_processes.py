"""Java programs that print a line of JSON for each event: Apache Kafka's verifiable clients, and others in `clients/java`."""

import json
import subprocess
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from .apache_kafka import CACHE

FOLDER: Final = "kafka-tools-4.3.1"
_TOOLS: Final = "org.apache.kafka.tools"
_WITHIN_S: Final = 60
Event = dict[str, Any]


class JavaProcess(threading.Thread):
    """A program and its events so far. SIGTERM lets it finish its work.

    program  name that a failed test shows
    events   lines that it has printed, in their order
    """

    def __init__(self, program: str, command: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.program = program
        self.events: list[Event] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.start()

    def run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def named(self, name: str) -> list[Event]:
        """Return the events of a kind."""
        return [event for event in list(self.events) if event["name"] == name]

    @property
    def has_ended(self) -> bool:
        """True if the process has exited."""
        return self.process.poll() is not None

    def end(self, within_s: float = _WITHIN_S) -> None:
        """Let it end, with its last events."""
        self.process.terminate()
        self.process.wait(within_s)
        self.join(within_s)

    def close(self) -> None:
        """End it, with its pipe."""
        self.process.kill()
        self.process.wait()
        self.join(_WITHIN_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


def tool(name: str, *arguments: str) -> JavaProcess:
    """Start a verifiable client of Apache Kafka, such as VerifiableProducer."""
    java = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{CACHE / FOLDER}/*", f"{_TOOLS}.{name}"]
    return JavaProcess(name, [*java, *arguments])


def rows(events: Sequence[Event]) -> dict[int, list[tuple[int, str]]]:
    """Return offsets and values of records by partition, in the order of the events."""
    by_partition: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for event in events:
        by_partition[event["partition"]].append((event["offset"], event["value"]))
    return by_partition
