"""Acknowledged records are there after a stop, after kill -9, and with a torn tail."""

import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from .conftest import Process, Start
from .records import Numbers, create, read_all

TOPIC = "numbers"
PARTITIONS = 3


def committed(servers: str, offsets: list[int] | None = None) -> list[int]:
    """The group's committed offsets, after committing `offsets` if given."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False})
    if offsets is not None:
        parts = [TopicPartition(TOPIC, index, offset) for index, offset in enumerate(offsets)]
        consumer.assign(parts)
        consumer.commit(offsets=parts, asynchronous=False)
    partitions = consumer.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], timeout=30)
    consumer.close()
    return [part.offset for part in partitions]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_everything_is_there_after_a_restart(start: Start, end: str) -> None:
    process = start()
    create(process.bootstrap_servers, TOPIC, PARTITIONS)
    numbers = Numbers(process.bootstrap_servers, TOPIC, PARTITIONS, enable_idempotence=True)
    numbers.until(lambda: numbers.count >= 2000)
    numbers.flush()
    before = read_all(process.bootstrap_servers, TOPIC, PARTITIONS)
    assert committed(process.bootstrap_servers, [1, 22, 333]) == [1, 22, 333]
    if end == "stop":
        assert process.stop() == ""
        assert (process.data_dir / ".kafka_cleanshutdown").exists()
    else:
        process.kill()
    again = start()
    assert read_all(again.bootstrap_servers, TOPIC, PARTITIONS) == before
    assert committed(again.bootstrap_servers) == [1, 22, 333]
    assert again.stop() == ""


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.timeout(0)
def test_kill_9_under_load_loses_nothing_that_was_acknowledged(
    start: Start, dice: random.Random, rounds: int, idempotent: bool
) -> None:
    """The producer lives on through all rounds; it sees connections break and nothing else."""
    process = start()
    create(process.bootstrap_servers, TOPIC, PARTITIONS, segment_bytes="1048576")
    numbers = Numbers(
        process.bootstrap_servers,
        TOPIC,
        PARTITIONS,
        1000,
        enable_idempotence=idempotent,
        max_in_flight_requests_per_connection=5 if idempotent else 1,
        retries=1_000_000,
    )
    for _ in range(rounds):
        enough = numbers.count + dice.randrange(1, 3000)
        numbers.until(lambda: numbers.count >= enough)  # noqa: B023  used up at once
        process.kill()
        process = start(port=process.port)
    numbers.flush()
    records = read_all(process.bootstrap_servers, TOPIC, PARTITIONS)
    for partition, acknowledged in numbers.acknowledged.items():
        assert [offset for offset, _ in records[partition]] == list(range(len(records[partition])))
        at = dict(records[partition])
        assert {number: at.get(offset) for number, offset in acknowledged.items()} == {n: n for n in acknowledged}
        in_order = [number for _, number in records[partition]]
        if idempotent:
            assert in_order == sorted(acknowledged)
        else:  # a batch whose answer was lost may be there twice, each time whole and in order
            assert list(dict.fromkeys(in_order)) == sorted(acknowledged)


def newest_segment(process: Process) -> Path:
    return max((process.data_dir / f"{TOPIC}-0").glob("*.log"))


def garbage(path: Path, dice: random.Random) -> None:
    with path.open("ab") as file:
        file.write(dice.randbytes(dice.randrange(1, 5000)))


def zeros(path: Path, dice: random.Random) -> None:
    with path.open("ab") as file:
        file.write(bytes(dice.randrange(1, 5000)))


def cut(path: Path, dice: random.Random) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - dice.randrange(1, 100))


def flipped_bit(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[-dice.randrange(1, 100)] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [garbage, zeros, cut, flipped_bit], ids=lambda damage: damage.__name__)
def test_a_torn_tail_is_cut_and_the_rest_is_served(start: Start, dice: random.Random, damage: object) -> None:
    assert callable(damage)
    process = start()
    create(process.bootstrap_servers, TOPIC, 1)
    numbers = Numbers(process.bootstrap_servers, TOPIC, 1, enable_idempotence=True, batch_num_messages=7)
    enough = dice.randrange(500, 1500)
    numbers.until(lambda: numbers.count >= enough)
    numbers.flush()
    before = read_all(process.bootstrap_servers, TOPIC, 1)[0]
    process.kill()
    damage(newest_segment(process), dice)
    again = start()
    records = read_all(again.bootstrap_servers, TOPIC, 1)[0]
    assert records == before[: len(records)]
    assert len(before) - 7 <= len(records) <= len(before)
    assert (len(records) < len(before)) == (damage in (cut, flipped_bit))
    more = Numbers(again.bootstrap_servers, TOPIC, 1, enable_idempotence=True)
    more.until(lambda: more.count >= 100)
    more.flush()
    assert min(more.acknowledged[0].values()) == len(records)
    (line,) = again.stop().splitlines()
    assert " WARNING " in line
    assert f"the log is cut there, at offset {len(records)}" in line
