"""Clients of the registers: writers, each of which owns some keys of a compacted topic, and readers of the whole log."""

import random
import threading
import time
from functools import partial
from typing import Any, Final

from tests.crash.replicated_load import Worker

from .operations import FAIL, OK, UNKNOWN, History
from .queue_clients import durable_producer, position_of
from .readings import READ_ERRORS, UNCOMMITTED, Item, LibrdkafkaReader, OttlaReader, PartitionReader
from .registers import READ, WRITE

TOPIC: Final = "registers"
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "4000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "60000",
    "file.delete.delay.ms": "1000",
}
_KEYS: Final = 100
"""Keys of a writer."""
_PADDING: Final = b"." * 100
_WITHIN_S: Final = 120


class RegisterWriter(Worker):
    """Idempotent producer that owns some keys, and has at most one write of each without an answer.

    retired  keys whose last write has no known outcome; they are not written again
    """

    def __init__(self, servers: str, history: History, number: int, dice: random.Random, rate: float) -> None:
        super().__init__()
        self._servers = servers
        self._history = history
        self._is_ottla = number % 2 == 0
        self._name = f"{'ottla' if self._is_ottla else 'librdkafka'}-writer-{number}"
        self._dice = dice
        self._pause_s = 1 / rate
        self._lock = threading.Lock()
        first = number * _KEYS
        self._versions = dict.fromkeys(range(first, first + _KEYS), 0)
        self._free = list(self._versions)
        self.retired: list[int] = []
        self.start()

    def _delivered(self, number: int, key: int, error: object, message: Any) -> None:
        if error is not None:
            self.retired.append(key)
            self._history.complete(number, WRITE, UNKNOWN, error=str(error))
            return
        self._history.complete(number, WRITE, OK, offset=position_of(message)[1])
        with self._lock:
            self._free.append(key)

    def work(self) -> None:
        producer = durable_producer(self._servers, is_ottla=self._is_ottla)
        while not self.over.is_set():
            producer.poll(0)
            self.over.wait(self._pause_s)
            with self._lock:
                if not self._free:
                    continue
                key = self._free.pop(self._dice.randrange(len(self._free)))
            version = self._versions[key] = self._versions[key] + 1
            tombstone = self._dice.random() < 0.1
            number = self._history.invoke(self._name, WRITE, key=key, version=version, tombstone=tombstone)
            producer.produce(
                TOPIC,
                None if tombstone else _PADDING,
                key=b"%d" % key,
                partition=0,
                headers=[("version", b"%d" % version)],
                on_delivery=partial(self._delivered, number, key),
            )
        assert producer.flush(_WITHIN_S) == 0, "records without an answer"
        close = getattr(producer, "close", None)
        if self._is_ottla and close is not None:
            close()


class RegisterReader(Worker):
    """Reader of the whole log from its beginning, again and again."""

    def __init__(self, servers: str, history: History, number: int, dice: random.Random, pause_s: float) -> None:
        super().__init__()
        self._servers = servers
        self._history = history
        self._made = OttlaReader if number % 2 == 0 else LibrdkafkaReader
        self._dice = dice
        self._pause_s = pause_s
        self._reader: PartitionReader | None = None
        self.start()

    def work(self) -> None:
        while not self.over.is_set():
            if self._reader is None:
                self._reader = self._made(self._servers, UNCOMMITTED)
            read_registers(self._reader, self._history)
            self.over.wait(self._dice.uniform(0.5, 1.5) * self._pause_s)
        if self._reader is not None:
            self._reader.close()


def read_registers(reader: PartitionReader, history: History, *, final: bool = False) -> bool:
    """Read the whole log once; return False if it could not be read."""
    number = history.invoke(type(reader).__name__, READ, final=final)
    try:
        items, end = reader.read(TOPIC, 0, 0, 20)
    except READ_ERRORS as cause:
        history.complete(number, READ, FAIL, error=str(cause))
        return False
    history.complete(number, READ, OK, end=end, rows=[_row(item) for item in items])
    return True


def _row(item: Item) -> tuple[int, int, int, bool]:
    return item.offset, int(item.key or b"-1"), int(item.headers["version"]), item.value is None


def read_at_the_end(servers: str, history: History) -> None:
    """Read the log with both clients, after the end of all writers."""
    for made in (OttlaReader, LibrdkafkaReader):
        reader = made(servers, UNCOMMITTED)
        deadline = time.monotonic() + _WITHIN_S
        while not read_registers(reader, history, final=True):
            assert time.monotonic() < deadline, "the registers cannot be read"
        reader.close()
