"""`ottla replica-verification` on a cluster of three brokers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from ottla import Producer
from ottla.records.batch import build, scan
from ottla.records.record import Record
from ottla.testing import KafkaCluster

from .commands import Commands

QUICK = ("--once", "--max-wait-ms", "50", "--time", "-2")


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(3, {"default.replication.factor": 3, "min.insync.replicas": 2}) as running:
        running.create_topic("orders", 2)
        running.create_topic("other", 1)
        producer = Producer(bootstrap_servers=running.bootstrap_servers, acks="all", linger_ms=0)
        for number in range(20):
            producer.produce("orders", value=b"%05d" % number, partition=number % 2)
            producer.flush()
        producer.close()
        yield running


def lines(commands: Commands, *words: str) -> list[str]:
    """Run the command, and return its lines without the time in front."""
    result = commands.run("replica-verification", *words)
    return [
        re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: ", "", line)
        for line in (result.stdout + result.stderr).splitlines()
    ]


def test_equal_replicas(cluster: KafkaCluster) -> None:
    commands = Commands(cluster.bootstrap_servers)
    for size in ("1048576", "1", "200"):  # a fetch of a few bytes returns one batch
        assert lines(commands, *QUICK, "--fetch-size", size) == [
            "verification process is started",
            "max lag is 0 for partition orders-0 at offset 10 among 3 partitions",
        ]
    assert lines(commands, *QUICK, "--topics-include", "oth.*,none")[-1] == (
        "max lag is 0 for partition other-0 at offset 0 among 1 partitions"
    )


def replace_batch(path: Path, number: int, value: bytes) -> None:
    """Replace a batch in a segment by one with another value of the same length."""
    data = bytearray(path.read_bytes())
    header = scan(bytes(data)).batches[number]
    batch = build([Record(0, header.base_timestamp, None, value)])
    assert len(batch) == header.end - header.start
    data[header.start + 17 : header.start + 21] = batch[17:21]
    data[header.start + 61 : header.end] = batch[61:]
    path.write_bytes(data)


def with_own_crc(path: Path, number: int) -> None:
    """Store the CRC that the content of a batch has."""
    data = bytearray(path.read_bytes())
    header = scan(bytes(data)).batches[number]
    data[header.start + 17 : header.start + 21] = crc32c(bytes(data[header.start + 21 : header.end])).to_bytes(4, "big")
    path.write_bytes(data)


@pytest.mark.parametrize("is_corrupt", [False, True])
def test_a_batch_that_differs(cluster: KafkaCluster, is_corrupt: bool) -> None:
    follower = cluster.image.topics["orders"].partitions[1].replicas[1]
    cluster.stop(follower)
    segment = cluster[follower].data_dir / "orders-1" / "00000000000000000000.log"
    replace_batch(segment, 4, b"other")
    if not is_corrupt:
        with_own_crc(segment, 4)
    cluster.restart(follower)
    commands = Commands(cluster.bootstrap_servers)
    result = lines(commands, *QUICK)
    assert "max lag is 0 for partition orders-0 at offset 10 among 3 partitions" in result
    assert result[-1] == "ottla: the replicas of 1 partitions differ"
    differences = [line for line in result if "orders-1" in line]
    assert any(
        line.startswith("partition orders-1 has unmatched checksum at offset 4; replica ") for line in differences
    )
    corrupt = f"partition orders-1: the batch at offset 4 of replica {follower} is corrupt"
    assert (corrupt in differences) == is_corrupt
    assert lines(commands, *QUICK, "--topics-include", "other")[-1].startswith("max lag is 0 ")


def test_a_batch_that_is_missing(cluster: KafkaCluster) -> None:
    follower = cluster.image.topics["orders"].partitions[0].replicas[2]
    cluster.stop(follower)
    segment = cluster[follower].data_dir / "orders-0" / "00000000000000000000.log"
    data = segment.read_bytes()
    header = scan(data).batches[3]
    segment.write_bytes(data[: header.start] + data[header.end :])
    cluster.restart(follower)
    result = lines(Commands(cluster.bootstrap_servers), *QUICK)
    assert any(
        re.match(r"partition orders-0: replica \d's offset \d+ doesn't match replica \d's offset \d+", line)
        for line in result
    )


def test_a_replica_that_is_down_is_shown_as_lag(cluster: KafkaCluster) -> None:
    commands = Commands(cluster.bootstrap_servers)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ottla.cli.kafka.replica_verification._RETRY_S", 0.05)
        fault = cluster[cluster.image.topics["orders"].partitions[0].replicas[1]].fail(
            "Fetch", 12, error="KAFKA_STORAGE_ERROR"
        )
        result = lines(commands, *QUICK, "--topics-include", "orders")
        assert fault.hits
    assert any("KAFKA_STORAGE_ERROR" in line for line in result)
    assert result[-1].startswith("max lag is 0 ")


def test_wrong_usage(cluster: KafkaCluster) -> None:
    commands = Commands(cluster.bootstrap_servers)
    assert commands.refused("replica-verification", "--topics-include", "nothing") == "no topic matches nothing"
    assert "--topics-include (" in commands.misused("replica-verification", "--topics-include", "(")
