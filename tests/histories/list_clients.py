"""Clients of the lists: transactions that append and read, with both clients' producers and readers."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from ottla import KafkaError as OttlaError
from ottla import Producer as OttlaProducer
from ottla.client.errors import RetriableError
from tests.crash.replicated_load import Worker

from .lists import FINAL, TRANSACTION
from .operations import FAIL, OK, UNKNOWN, History
from .readings import COMMITTED, READ_ERRORS, UNCOMMITTED, LibrdkafkaReader, OttlaReader, PartitionReader

TOPIC: Final = "lists"
LISTS: Final = 8
EXCLUSIVE: Final = frozenset(range(4, 8))
_WITHIN_S: Final = 120
_TRY_S: Final = 10
_ERRORS: Final = (KafkaException, OttlaError, BufferError)


class ExclusiveLists:
    """Locks of the lists to which one transaction writes at a time; a lock is held until the end of its owner is certain."""

    def __init__(self) -> None:
        self._locks = {key: threading.Lock() for key in sorted(EXCLUSIVE)}

    def acquire(self, keys: Sequence[int], ending: ExitStack) -> bool:
        """Lock those of the keys that are exclusive, in ascending order; return False if one of them is locked for long."""
        for key in sorted(set(keys) & EXCLUSIVE):
            if not self._locks[key].acquire(timeout=1):
                return False
            ending.callback(self._locks[key].release)
        return True


class Undecided(Exception):
    """The outcome of a commit is unknown; a successor of the producer fences it."""


class LibrdkafkaTransactions:
    """librdkafka's transactional producer."""

    def __init__(self, servers: str, name: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": name,
                "transaction.timeout.ms": 30_000,
                "linger.ms": 1,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._has_purged = False
        self._producer.init_transactions(30)

    @property
    def is_reusable(self) -> bool:
        """Return False after an abort that has purged records: librdkafka numbers the next ones like them."""
        with contextlib.suppress(KafkaException):  # a fatal error, which it raises again
            self._producer.poll(0)
        return not self._has_purged

    def begin(self) -> None:
        self._producer.begin_transaction()

    def append(self, key: int, value: int, appended: Callable[[int, int, int], None]) -> None:
        def delivered(error: object, message: Any) -> None:
            if error is None:
                appended(key, value, message.offset())
            else:
                self._has_purged = True

        self._producer.produce(TOPIC, b"%d" % value, partition=key, on_delivery=delivered)

    def flush(self) -> None:
        self._producer.flush(_TRY_S)

    def commit(self) -> bool:
        """Commit; return False if the transaction was aborted instead. Raises Undecided."""
        try:
            self._repeat(self._producer.commit_transaction)
        except KafkaException as cause:
            if not cause.args[0].txn_requires_abort():
                raise Undecided from cause
            self.abort()
            return False
        return True

    def abort(self) -> None:
        self._repeat(self._producer.abort_transaction)

    def _repeat(self, action: Callable[[float], None]) -> None:
        deadline = time.monotonic() + _WITHIN_S
        while True:
            try:
                action(_TRY_S)
            except KafkaException as cause:
                if not cause.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    def close(self) -> None:
        """Do nothing: the next producer of the same name fences this one."""


class OttlaTransactions:
    """Ottla's transactional producer."""

    def __init__(self, servers: str, name: str) -> None:
        self._producer = OttlaProducer(
            bootstrap_servers=servers,
            transactional_id=name,
            transaction_timeout_ms=30_000,
            delivery_timeout_ms=30_000,
            request_timeout_ms=10_000,
            linger_ms=1,
        )
        try:
            self._producer.init_transactions(30)
        except BaseException:
            self.close()
            raise

    is_reusable: Final = True

    def begin(self) -> None:
        self._producer.begin_transaction()

    def append(self, key: int, value: int, appended: Callable[[int, int, int], None]) -> None:
        def delivered(error: object, message: Any) -> None:
            if error is None:
                appended(key, value, message.offset)

        self._producer.produce(TOPIC, b"%d" % value, partition=key, on_delivery=delivered)

    def flush(self) -> None:
        self._producer.flush(_TRY_S)

    def commit(self) -> bool:
        """Commit; return False if the transaction was aborted instead. Raises Undecided."""
        try:
            self._repeat(self._producer.commit_transaction)
        except OttlaError as cause:
            try:
                self.abort()
            except OttlaError:
                raise Undecided from cause
            return False
        return True

    def abort(self) -> None:
        self._repeat(self._producer.abort_transaction)

    def _repeat(self, action: Callable[[float], None]) -> None:
        deadline = time.monotonic() + _WITHIN_S
        while True:
            try:
                action(_TRY_S)
            except RetriableError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    def close(self) -> None:
        with contextlib.suppress(OttlaError):  # of records without an answer
            self._producer.close(0)


Transactions = LibrdkafkaTransactions | OttlaTransactions


class ListClient(Worker):
    """Client that runs transactions one after the other, each with appends and reads of a few lists."""

    def __init__(
        self, servers: str, history: History, number: int, dice: random.Random, exclusive: ExclusiveLists
    ) -> None:
        super().__init__()
        self._servers = servers
        self._history = history
        self._is_ottla = number % 2 == 0
        self._name = f"{'ottla' if self._is_ottla else 'librdkafka'}-{number}"
        self._dice = dice
        self._exclusive = exclusive
        self._value = number * 10_000_000
        self._positions = dict.fromkeys(range(LISTS), 0)
        self._producer: Transactions | None = None
        self._reader: PartitionReader | None = None
        self.start()

    def _ready(self) -> Transactions:
        """Return a producer; a new one has ended the last transaction of the one before."""
        deadline = time.monotonic() + _WITHIN_S
        made: type[Transactions] = OttlaTransactions if self._is_ottla else LibrdkafkaTransactions
        while self._producer is None:
            try:
                self._producer = made(self._servers, f"lists-{self._name}")
            except _ERRORS:
                if time.monotonic() > deadline:
                    raise
        return self._producer

    def _drop(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def work(self) -> None:
        while not self.over.is_set():
            self._ready()
            keys = [self._dice.randrange(LISTS) for _ in range(self._dice.choice((1, 2, 2, 3, 4)))]
            with ExitStack() as ending:
                if self._exclusive.acquire(keys, ending):
                    self._run(keys)
                    self._ready()  # before the locks are released: an undecided transaction is over then
            self.over.wait(self._dice.uniform(0, 0.1))
        self._drop()
        if self._reader is not None:
            self._reader.close()

    def _run(self, keys: Sequence[int]) -> None:
        appends = []
        for key in keys:
            self._value += 1
            appends.append((key, self._value))
        number = self._history.invoke(self._name, TRANSACTION, appends=appends)
        result: dict[str, Any] = {"appended": [], "reads": []}
        outcome = self._attempt(appends, result)
        self._history.complete(number, TRANSACTION, outcome, **result)
        if outcome == UNKNOWN or self._producer is None or not self._producer.is_reusable:
            self._drop()

    def _attempt(self, appends: Sequence[tuple[int, int]], result: dict[str, Any]) -> str:
        """Run a transaction, and return its outcome."""
        producer = self._ready()
        try:
            producer.begin()
            if self._dice.random() < 0.3:
                self._read(result["reads"])
            for key, value in appends:
                producer.append(key, value, lambda *row: result["appended"].append(row))
                if self._dice.random() < 0.1:
                    producer.flush()
            if self._dice.random() < 0.3:
                producer.flush()
                self._read(result["reads"])
            if self._dice.random() < 0.15:
                producer.flush()
                producer.abort()
                return FAIL
            result["committing"] = self._history.now()
            return OK if producer.commit() else FAIL
        except Undecided:
            return UNKNOWN
        except _ERRORS as cause:
            result["error"] = str(cause)
            self._drop()
            # Without a commit the next producer of this name aborts the transaction.
            return UNKNOWN if "committing" in result else FAIL

    def _read(self, reads: list[Any]) -> None:
        """Read one or two lists from where this client was, sometimes from the beginning."""
        for key in self._dice.sample(range(LISTS), self._dice.choice((1, 2))):
            start = 0 if self._dice.random() < 0.005 else self._positions[key]
            try:
                if self._reader is None:
                    self._reader = (OttlaReader if self._is_ottla else LibrdkafkaReader)(self._servers, COMMITTED)
                items, end = self._reader.read(TOPIC, key, start, 5)
            except READ_ERRORS:
                continue  # the transaction goes on without this read
            rows = [(item.offset, int(item.value or b"")) for item in items]
            reads.append((key, start, end, rows, self._history.now()))
            self._positions[key] = max(end, self._positions[key])


def read_all(servers: str, history: History, *, is_ottla: bool) -> None:
    """Read all lists from the beginning, when no transaction is open any more."""
    made = OttlaReader if is_ottla else LibrdkafkaReader
    number = history.invoke(made.__name__, FINAL)
    stable, newest = made(servers, COMMITTED), OttlaReader(servers, UNCOMMITTED)
    deadline = time.monotonic() + _WITHIN_S
    reads = []
    for key in range(LISTS):
        while True:
            try:
                items, end = stable.read(TOPIC, key, 0, 60)
                _, log_end = newest.read(TOPIC, key, end, 60)
            except READ_ERRORS:
                assert time.monotonic() < deadline, f"list {key} cannot be read"
                continue
            if end == log_end:
                break
            assert time.monotonic() < deadline, f"a transaction stays open in list {key} at {end} of {log_end}"
            time.sleep(0.2)
        reads.append((key, 0, end, [(item.offset, int(item.value or b"")) for item in items], history.now()))
    stable.close()
    newest.close()
    history.complete(number, FINAL, OK, reads=reads)
