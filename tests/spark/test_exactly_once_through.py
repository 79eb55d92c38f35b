"""Whatever happens in between, every committed record of a topic comes out once: in files, and in a topic written exactly once.

Produce, transactions, triggers, crashes, restarts, compaction, growth, in any order; compared with a plain consumer.
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer as Foreign
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.blocking import Producer
from ottla.client.topics import LATEST
from ottla.spark.cluster import ClusterClient as Brokers
from ottla.spark.exactly_once import prepare
from ottla.spark.options import sink_options
from ottla.testing import EmbeddedBroker
from tests.client.conftest import QUICK
from tests.spark.conftest import Cluster
from tests.spark.engine import Engine


class Produce(NamedTuple):
    records: int


class Transaction(NamedTuple):
    records: int
    commit: bool


class LeaveOpen(NamedTuple):
    records: int


class EndOpen(NamedTuple):
    commit: bool


class Grow(NamedTuple):
    by: int


class Run(NamedTuple):
    steps: int


Action = Produce | Transaction | LeaveOpen | EndOpen | Grow | Run
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(Produce, st.integers(1, 12)),
    st.builds(Transaction, st.integers(1, 6), st.booleans()),
    st.builds(LeaveOpen, st.integers(1, 4)),
    st.builds(EndOpen, st.booleans()),
    st.builds(Grow, st.integers(1, 2)),
    st.builds(Run, st.integers(0, 14)),
    st.builds(Run, st.just(1000)),
)


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    address = request.config.getoption("--broker")
    if address:
        yield Cluster(address)
        return
    with EmbeddedBroker({**QUICK, "log.cleaner.backoff.ms": "50"}) as embedded:
        yield Cluster(embedded.bootstrap_servers)


class Input:
    """The topic that is read: compacted, with keys that come again."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic = cluster.topic(
            partitions=1,
            topic_configs={
                "cleanup.policy": "compact",
                "segment.bytes": "1048576",
                "segment.ms": "1",
                "min.cleanable.dirty.ratio": "0.0",
            },
        )
        self.committed: Counter[str] = Counter()
        self._partitions = 1
        self._number = 0
        self._plain = Foreign({"bootstrap.servers": cluster.servers, "log_level": 0})
        self._transactional = self._new_transactional()
        self._open: list[str] | None = None
        self._other: Foreign | None = None

    def _new_transactional(self) -> Foreign:
        made = Foreign(
            {"bootstrap.servers": self.cluster.servers, "transactional.id": self.cluster.name(), "log_level": 0}
        )
        made.init_transactions(20)
        return made

    def _send(self, producer: Foreign, count: int) -> list[str]:
        sent = []
        for _ in range(count):
            self._number += 1
            value = f"v{self._number}"
            producer.produce(self.topic, value, key=f"k{self._number % 5}", partition=self._number % self._partitions)
            sent.append(value)
        assert producer.flush(20) == 0
        return sent

    def act(self, action: Action) -> None:
        if isinstance(action, Produce):
            self.committed.update(self._send(self._plain, action.records))
        elif isinstance(action, Transaction):
            self._transactional.begin_transaction()
            sent = self._send(self._transactional, action.records)
            if action.commit:
                self._transactional.commit_transaction()
                self.committed.update(sent)
            else:
                self._transactional.abort_transaction()
        elif isinstance(action, LeaveOpen):
            if self._open is None:
                self._other = self._other or self._new_transactional()
                self._other.begin_transaction()
                self._open = self._send(self._other, action.records)
        elif isinstance(action, EndOpen):
            self.end_open(commit=action.commit)
        elif isinstance(action, Grow):
            self._partitions += action.by
            self.cluster.grow(self.topic, self._partitions)
            for producer in (self._plain, self._transactional, self._other):
                if producer is not None:
                    producer.list_topics(self.topic, 20)  # it learns of them

    def end_open(self, *, commit: bool) -> None:
        if self._open is None or self._other is None:
            return
        if commit:
            self._other.commit_transaction()
            self.committed.update(self._open)
        else:
            self._other.abort_transaction()
        self._open = None


def all_is_stable(brokers: Brokers, topic: str) -> None:
    """Wait for the markers of transactions that have ended: brokers write them after they have answered."""
    latest = dict.fromkeys(brokers.partitions(topic), LATEST)
    deadline = time.monotonic() + 20
    while brokers.list_offsets(latest, committed=True) != brokers.list_offsets(latest, committed=False):
        assert time.monotonic() < deadline, "a transaction stays open"
        time.sleep(0.01)


def test_every_record_once(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    soak = int(request.config.getoption("--soak"))
    servers: dict[str, Any] = {"kafka.bootstrap.servers": cluster.servers}

    @settings(max_examples=4 * soak, deadline=None, derandomize=soak == 1)
    @given(st.lists(ACTIONS, min_size=3, max_size=14), st.sampled_from(["", "3", "10"]), st.booleans())
    def check(actions: list[Action], limit: str, latest: bool) -> None:
        source = Input(cluster)
        target = cluster.topic(partitions=2)
        options = {**servers, "subscribe": source.topic, "startingOffsets": "latest" if latest else "earliest"}
        if limit:
            options["maxOffsetsPerTrigger"] = limit
        sink = sink_options({**servers, "topic": target, "exactlyOnce": "true"}, stream=False)
        with Brokers(sink.config) as brokers, Producer(sink.config) as producer:
            prepare(brokers)
            engine = Engine(brokers, producer, options, sink, target)
            if latest:
                engine.run(1)  # where it begins is written down, and nothing more
            for action in actions:
                if isinstance(action, Run):
                    engine.run(action.steps)
                else:
                    source.act(action)
            source.end_open(commit=True)
            all_is_stable(brokers, source.topic)
            assert engine.run()
        files = Counter(value for rows in engine.files.values() for value in rows)
        published = Counter((record.value or b"").decode() for record in cluster.records(target, committed=True))
        there = {(record.value or b"").decode() for record in cluster.records(source.topic, committed=True)}
        assert published == files
        assert set(files.values()) <= {1}
        assert there <= files.keys() <= source.committed.keys()  # what was compacted away before it was read is gone

    check()
