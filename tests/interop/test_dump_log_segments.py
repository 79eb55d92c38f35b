"""Kafka's DumpLogSegments reads every file that Ottla writes: appended, rolled, compacted, expired, with aborted transactions,
and after kill -9."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.crash.conftest import Process
from tests.interop.apache_kafka import DUMPED, dumped, skip_without

OPTIONS = (
    "-o",
    "log.cleaner.backoff.ms=20",
    "-o",
    "log.initial.task.delay.ms=20",
    "-o",
    "log.retention.check.interval.ms=20",
)
TOPICS = {
    "plain": {"segment.bytes": "1048576", "index.interval.bytes": "4096"},
    "compacted": {
        "segment.bytes": "1048576",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "0",
    },
    "expiring": {"segment.bytes": "1048576", "retention.bytes": "524288", "file.delete.delay.ms": "0"},
}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COMPLAINTS = ("mismatch", "exception", "isvalid: false", "corrupt", "should be", "not found", "fail", "error")
pytestmark = pytest.mark.timeout(300)


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def load(servers: str, rounds: int) -> None:
    """Several segments in each topic; every codec; a producer that is remembered in snapshots."""
    chance = random.Random(rounds)  # nothing that a codec could make small
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": codec})
        for number in range(rounds):
            for topic in TOPICS:
                producer.produce(topic, key=b"%d" % (number % 40), value=chance.randbytes(1000), partition=0)
        assert producer.flush(60) == 0
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "dumped"})
    producer.init_transactions(60)
    for number in range(10):
        producer.begin_transaction()
        for topic in TOPICS:
            producer.produce(topic, key=b"%d" % (number % 40), value=chance.randbytes(1000), partition=0)
        assert producer.flush(60) == 0  # an abort would drop what was not sent yet
        if number % 2:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)


def segments(data: Path, topic: str) -> list[Path]:
    return sorted((data / f"{topic}-0").glob("*.log"))


def complaints(output: str) -> list[str]:
    """Return the complaints, without the one that the tool has about Apache Kafka's own files too: when the newest batch
    of a segment was emptied by compaction and kept for its producer, the time index names it, and it holds no record."""
    lines = output.splitlines()
    matches = [line for line in lines if any(word in line.lower() for word in COMPLAINTS)]
    wrong = {line for line in lines if "log timestamp: " in line and not line.endswith("log timestamp: -1")}
    if not wrong:
        matches = [line for line in matches if not line.startswith("Found timestamp mismatch in ")]
    return matches + sorted(wrong)


def assert_readable(data: Path, topics: list[str]) -> None:
    for topic in topics:
        files = [path for path in sorted((data / f"{topic}-0").iterdir()) if path.suffix in DUMPED]
        assert {path.suffix for path in files} >= {".log", ".index", ".timeindex"}
        output = dumped(files)
        assert complaints(output) == [], topic
        for path in files:
            assert f"Dumping {path}" in output


def test_every_file_is_read_without_a_complaint(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    skip_without("kafka-tools-4.3.1", request)
    data = tmp_path / "data"
    broker = Process(data, *OPTIONS)
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        new = [NewTopic(name, 1, 1, config=configs) for name, configs in TOPICS.items()]
        for made in admin.create_topics(new).values():
            made.result()
        load(broker.bootstrap_servers, 450)
        wait_until(lambda: segments(data, "expiring")[0].stem != "0" * 20)
        wait_until(lambda: sum(path.stat().st_size for path in segments(data, "compacted")) < 1_500_000)
        broker.stop()
        assert len(segments(data, "plain")) > 1
        assert list((data / "plain-0").glob("*.txnindex"))
        assert_readable(data, list(TOPICS))

        broker = Process(data, *OPTIONS)
        load(broker.bootstrap_servers, 100)
        broker.kill()
        broker = Process(data, *OPTIONS)
        load(broker.bootstrap_servers, 30)
        broker.stop()
        assert_readable(data, list(TOPICS))
    finally:
        if broker.runs:
            broker.kill()
