"""Histories of transactions, in the style of Jepsen's list-append: several librdkafka producers append to lists, which are
partitions, and read them, while the broker is killed and started again; `histories.py` judges what they saw.

Every list that a transaction writes is its own until its end is known, or the producer has been replaced by one that fences it:
Kafka keeps no two open transactions from writing in different orders, so the clients must, for G0 and G1c to mean anything.
`--soak N` runs N times as long.
"""

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaException, Producer

from ottla.records.batch import records_of, scan
from tests.conformance.conftest import Closed, Topic, Wire
from tests.conformance.transactions import fetch_partitions

from .conftest import Process, Start
from .histories import ABORTED, COMMITTED, UNKNOWN, Transaction, anomalies
from .records import create

TOPIC = "lists"
LISTS = 6
CLIENTS = 4
SECONDS = 60
CONFIGS = ("-o", "transaction.abort.timed.out.transaction.cleanup.interval.ms=500")


class Lists:
    """The committed values of each list, as a reader sees them; it continues where it stopped."""

    def __init__(self, port: Callable[[], int]) -> None:
        self._port = port
        self._wire: Wire | None = None
        self._values: dict[int, list[int]] = {key: [] for key in range(LISTS)}
        self._offsets = dict.fromkeys(range(LISTS), 0)

    def read(self, key: int) -> list[int]:
        """The list as far as it is committed now."""
        deadline = time.monotonic() + SECONDS
        while True:
            assert time.monotonic() < deadline, "nobody answers"
            try:
                self._go_on(key)
            except (Closed, OSError):
                self.close()
                time.sleep(0.02)  # the broker is being started
                continue
            return list(self._values[key])

    def _go_on(self, key: int) -> None:
        if self._wire is None:
            self._wire = Wire(("127.0.0.1", self._port()), is_kafka=False)
        topic = Topic(self._wire, TOPIC, bytes(16))
        while True:
            offset = self._offsets[key]
            (part,) = fetch_partitions(self._wire, topic, key, offset=offset, version=11, max_wait_ms=0, min_bytes=0)
            assert part.error_code == 0
            aborted = sorted(
                ((transaction.first_offset, transaction.producer_id) for transaction in part.aborted_transactions),
                reverse=True,
            )
            skipped: set[int] = set()
            data = bytes(part.records or b"")
            batches = scan(data).batches
            if not batches:
                assert part.last_stable_offset <= offset
                return
            for header in batches:
                last = header.base_offset + header.last_offset_delta
                while aborted and aborted[-1][0] <= last:
                    skipped.add(aborted.pop()[1])
                if header.is_control:
                    skipped.discard(header.producer_id)
                elif header.producer_id not in skipped and last >= offset:
                    records = records_of(data[header.start : header.end])
                    self._values[key] += [int(record.value or b"") for record in records]
                self._offsets[key] = last + 1

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


class Client:
    """A transactional producer that works until it is told to stop."""

    def __init__(self, number: int, test: "Histories", seed: int) -> None:
        self.number = number
        self.test = test
        self.dice = random.Random(seed)
        self.lists = Lists(lambda: test.port)
        self._producer: Producer | None = None
        self._failed: list[object] = []

    def run(self) -> None:
        try:
            while not self.test.over.is_set():
                self._transact()
        finally:
            self.lists.close()

    def _ready(self) -> Producer:
        """Return a producer that owns its transactional id: `init_transactions` fences the one before."""
        deadline = time.monotonic() + SECONDS
        while self._producer is None:
            made = Producer(
                {
                    "bootstrap.servers": f"127.0.0.1:{self.test.port}",
                    "transactional.id": f"client-{self.number}",
                    "transaction.timeout.ms": 10_000,
                    "linger.ms": 0,
                    "reconnect.backoff.ms": 10,
                    "reconnect.backoff.max.ms": 50,
                    "retry.backoff.ms": 10,
                    "retry.backoff.max.ms": 50,
                    "log_level": 0,
                }
            )
            try:
                made.init_transactions(SECONDS)
            except KafkaException:
                assert time.monotonic() < deadline
            else:
                self._producer = made
        return self._producer

    def _transact(self) -> None:
        producer = self._ready()
        keys = self.test.take(self.dice)
        transaction = self.test.begin(self.number)
        self._failed = []
        try:
            producer.begin_transaction()
            for _ in range(self.dice.randrange(1, 6)):
                if self.dice.random() < 0.3:
                    key = self.dice.randrange(LISTS)
                    transaction.reads.append((key, self.lists.read(key)))
                else:
                    key, value = self.dice.choice(keys), self.test.new_value()
                    transaction.appends.append((key, value))
                    producer.produce(TOPIC, b"%d" % value, partition=key, on_delivery=self._delivered)
            producer.poll(0)
            if self.dice.random() < 0.2:
                self._abort(producer, transaction)
            else:
                self._commit(producer, transaction)
        except KafkaException:
            pass  # unknown how it ended, and this producer is of no use any more
        if transaction.outcome == UNKNOWN:
            self._producer = None
            self._ready()
        self.test.give_back(keys)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(error)

    def _commit(self, producer: Producer, transaction: Transaction) -> None:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                producer.commit_transaction(SECONDS)
            except KafkaException as cause:
                error = cause.args[0]
                if error.txn_requires_abort():
                    self._abort(producer, transaction)
                    return
                if not error.retriable():
                    raise
            else:
                assert self._failed == [], "committed without all of its records"
                transaction.outcome = COMMITTED
                return

    def _abort(self, producer: Producer, transaction: Transaction) -> None:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                producer.abort_transaction(SECONDS)
            except KafkaException as cause:
                if not cause.args[0].retriable():
                    raise
            else:
                transaction.outcome = ABORTED
                return


class Histories:
    """The state that all clients share."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.over = threading.Event()
        self.history: list[Transaction] = []
        self._free = set(range(LISTS))
        self._may_be_free = threading.Condition()
        self._values = 0

    def take(self, dice: random.Random) -> list[int]:
        """Return one or two lists that no other client writes."""
        with self._may_be_free:
            while not self._free:
                self._may_be_free.wait()
            taken = dice.sample(sorted(self._free), min(len(self._free), dice.randrange(1, 3)))
            self._free -= set(taken)
            return taken

    def give_back(self, keys: list[int]) -> None:
        with self._may_be_free:
            self._free |= set(keys)
            self._may_be_free.notify()

    def begin(self, client: int) -> Transaction:
        with self._may_be_free:
            transaction = Transaction(f"{len(self.history)} of client {client}")
            self.history.append(transaction)
            return transaction

    def new_value(self) -> int:
        with self._may_be_free:
            self._values += 1
            return self._values


@pytest.mark.timeout(0)
def test_histories_with_the_broker_killed_and_restarted(start: Start, dice: random.Random, rounds: int) -> None:
    process = start(*CONFIGS)
    create(process.bootstrap_servers, TOPIC, LISTS)
    test = Histories(process.port)
    clients = [Client(number, test, dice.randrange(1 << 32)) for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        working = [pool.submit(client.run) for client in clients]
        try:
            for _ in range(rounds):
                enough = committed(test) + dice.randrange(20, 60)
                wait(lambda: committed(test) >= enough or any(future.done() for future in working))  # noqa: B023  used up at once
                process = restart(process, start, kill=dice.random() < 0.8)
        finally:
            test.over.set()
        for future in working:
            future.result(2 * SECONDS)
    lists = Lists(lambda: process.port)
    final = {key: lists.read(key) for key in range(LISTS)}
    lists.close()
    outcomes = Counter(transaction.outcome for transaction in test.history)
    assert outcomes[COMMITTED] >= 20 * rounds
    assert outcomes[ABORTED] > 0
    assert sum(len(transaction.reads) for transaction in test.history) > 20
    assert anomalies(test.history, final) == []


def committed(test: Histories) -> int:
    return sum(transaction.outcome == COMMITTED for transaction in list(test.history))


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.01)


def restart(process: Process, start: Start, *, kill: bool) -> Process:
    """The broker again, on the same port."""
    port = process.port
    if kill:
        process.kill()
    else:
        process.stop()
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                break
            except OSError:
                continue
    return start(*CONFIGS, port=port)
