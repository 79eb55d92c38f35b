"""A group of member programs: start them, stop and kill them, see who has what and which records came how often."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

ROOT: Final = Path(__file__).parents[3]
_SECONDS: Final = 60


class MemberProcess:
    """One running member, as far as it has told."""

    def __init__(self, command: list[str], errors: Path) -> None:
        self.has: list[int] = []
        self.numbers: list[int] = []
        self._errors = errors
        with errors.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._ears = threading.Thread(target=self._listen)
        self._ears.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                event = json.loads(line)
                self.has = event.get("has", self.has)
                self.numbers += event.get("read", [])

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stderr_tail(self) -> str:
        """Return the end of its stderr."""
        return self._errors.read_text(encoding="utf-8", errors="replace")[-3000:]

    def stop(self) -> None:
        """Tell it to leave, and wait."""
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.close()
        assert self._process.wait(_SECONDS) == 0, self.stderr_tail()
        self._end()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._end()

    def _end(self) -> None:
        self._ears.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self.has = []


class ProcessGroup:
    """The members of one group that reads one topic, and the producer that writes it: record n has the value n."""

    def __init__(
        self,
        command: list[str],
        bootstrap: str,
        group: str,
        topic: str,
        partitions: int,
        settings: dict[str, str],
        logs: Path,
    ) -> None:
        self._command = command
        self._settings = [f"{name}={value}" for name, value in settings.items()]
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        self._partitions = partitions
        self._logs = logs
        self.members: list[MemberProcess] = []
        self._gone: list[MemberProcess] = []
        self._produced = 0

    def start(self, instance: str = "") -> MemberProcess:
        """One more member."""
        command = [*self._command, self._bootstrap, self._group, self._topic, instance, *self._settings]
        member = MemberProcess(command, self._logs / f"member-{len(self.members) + len(self._gone)}.log")
        self.members.append(member)
        return member

    def stop(self, member: MemberProcess) -> None:
        """One leaves in good order."""
        member.stop()
        self._forget(member)

    def kill(self, member: MemberProcess) -> None:
        """One goes without a word."""
        member.kill()
        self._forget(member)

    def _forget(self, member: MemberProcess) -> None:
        self.members.remove(member)
        self._gone.append(member)

    def close(self) -> None:
        """Kill whoever is left."""
        for member in self.members:
            member.kill()

    def produce(self, count: int) -> None:
        """`count` more records, over all partitions, a few at a time: rebalances come in the middle of them."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 0})
        for number in range(self._produced, self._produced + count):
            producer.produce(self._topic, b"%d" % number, partition=number % self._partitions)
            if number % 10 == 0:
                producer.poll(0.01)
        assert producer.flush(30) == 0
        self._produced += count

    def until_dealt(self) -> list[list[int]]:
        """Wait until the running members have all partitions, each once, and all have some; return them by member."""
        everything = list(range(self._partitions))
        self._until(
            lambda: (
                sorted(part for member in self.members for part in member.has) == everything
                and all(member.has for member in self.members)
            )
        )
        return [list(member.has) for member in self.members]

    def until_read(self) -> None:
        """Wait until every record has come."""
        self._until(lambda: self.counts().keys() >= set(range(self._produced)))

    def counts(self) -> Counter[int]:
        """Return how often each record was read, by all members together."""
        return Counter(number for member in [*self.members, *self._gone] for number in member.numbers)

    def twice(self) -> list[int]:
        """The records that came more than once."""
        return [number for number, count in self.counts().items() if count > 1]

    def _until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _SECONDS
        while not what():
            for member in self.members:
                assert member.is_running, member.stderr_tail()
            missing = set(range(self._produced)) - self.counts().keys()
            assignments = [member.has for member in self.members]
            assert time.monotonic() < deadline, (
                f"they have {assignments}; missing {sorted(missing)[:20]}; {self.members[0].stderr_tail()}"
            )
            time.sleep(0.02)


def python_member(module: str) -> list[str]:
    """The command of a member program in Python."""
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    return [sys.executable, "-W", "ignore", "-m", f"tests.interop.members.{module}"]
