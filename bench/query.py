"""`ottla query` beside confluent-kafka and pandas: the time until an answer over ten million records in the page cache.

    python bench/query.py [--records 10000000] [--rounds 3] [--only count group json]

The topic has four partitions, keys of four bytes and JSON values of 100 bytes. Each figure is that of a new process, from its
start to the answer on its standard output, and the most memory that it had:

    count  SELECT count(*)                                   pandas: len(frame)
    group  SELECT key, count(*) GROUP BY key                 pandas: frame.groupby("key").size()
    json   SELECT sum((value->>'n')::BIGINT)                 pandas: the same with json.loads

The pandas process reads all records with confluent-kafka into a frame of partition, offset, timestamp, key and value, and
answers all of them from it; each figure is the time of reading plus that of the one answer. The median of the rounds counts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from brokers import READING, Running, ottla, record

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

# pandas and pyarrow are imported by the processes that need them: a process counts the memory of the one that starts it.

PARTITIONS: Final = 4
KEYS: Final = 1000
BYTES: Final = 100
SIDES: Final = ("Ottla", "confluent-kafka")
STATEMENTS: Final = {
    "count": 'SELECT count(*) AS n FROM "{topic}"',
    "group": 'SELECT key, count(*) AS n FROM "{topic}" GROUP BY key ORDER BY key',
    "json": "SELECT sum((value->>'n')::BIGINT) AS n FROM \"{topic}\"",
}
_CHUNK: Final = 100_000


def fill(servers: str, topic: str, records: int) -> None:
    """Make a topic with this many records."""
    import pyarrow as pa

    from ottla import Admin, NewTopic, Producer

    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).check()
    with Producer(bootstrap_servers=servers) as producer:
        for first in range(0, records, _CHUNK):
            numbers = range(first, min(first + _CHUNK, records))
            values = [b'{"n": %08d, "note": "%s"}' % (10**7 + n, b"x" * (BYTES - 27)) for n in numbers]
            assert {len(value) for value in values} == {BYTES}
            keys = [b"%04d" % (n % KEYS) for n in numbers]
            table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
            producer.produce_arrow(table, topic)
        assert producer.flush() == 0


def frame_of(servers: str, topic: str) -> "pd.DataFrame":
    """All records of a topic, read with confluent-kafka."""
    import pandas as pd
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **READING,
            "bootstrap.servers": servers,
            "group.id": "bench",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    parts: list[pd.DataFrame] = []
    rows: list[tuple[Any, ...]] = []
    ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, 1):
            error = message.error()
            if error is None:
                at = message.timestamp()[1]
                rows.append((message.partition(), message.offset(), at, message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
            else:
                raise SystemExit(str(error))
        if len(rows) >= _CHUNK or ended == PARTITIONS:
            parts.append(pd.DataFrame(rows, columns=["partition", "offset", "timestamp", "key", "value"]))
            rows = []
    consumer.close()
    return pd.concat(parts, ignore_index=True)


def answer(servers: str, topic: str, begun: float) -> None:
    """Program of the process with pandas: one JSON line with the seconds and the text of each answer."""
    frame = frame_of(servers, topic)
    read = time.time() - begun
    answers = {}
    for name in STATEMENTS:
        started = time.perf_counter()
        if name == "count":
            text = f"n\n{len(frame)}\n"
        elif name == "group":
            sizes = frame.groupby("key").size()
            text = "key,n\n" + "".join(f"{key.decode()},{size}\n" for key, size in sizes.items())
        else:
            text = f"n\n{sum(json.loads(value)['n'] for value in frame['value'])}\n"
        answers[name] = read + time.perf_counter() - started, text
    print(json.dumps(answers))


def run(command: list[str]) -> tuple[float, float, str]:
    """Run a process; its seconds, its memory in MB at most, and its output."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    seconds = time.perf_counter() - begun
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed")
    return seconds, used.ru_maxrss / 1000, output


def asked(servers: str, topic: str, name: str) -> tuple[float, float, str]:
    """`ottla query` in a process of its own."""
    statement = STATEMENTS[name].format(topic=topic)
    return run([sys.executable, "-m", "ottla", "query", "--bootstrap-server", servers, "--format", "csv", statement])


def measure(broker: Running, names: list[str], records: int, rounds: int) -> dict[str, Any]:
    """The medians of both sides, which must give the same answers."""
    servers, topic = broker.bootstrap_servers, f"bench-{uuid.uuid4().hex[:8]}"
    run([sys.executable, __file__, "--records", str(records), "--fill", servers, topic])
    asked(servers, topic, "json")  # it reads all of it
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: {side: [] for side in SIDES})
    for number in range(rounds):
        _, their_mb, line = run([sys.executable, __file__, "--answer", servers, topic, str(time.time())])
        answers = json.loads(line)
        for name in names:
            our_s, our_mb, text = asked(servers, topic, name)
            their_s, expected = answers[name]
            if text != expected:
                raise SystemExit(f"{name}: the answers differ: {text[:200]!r} and {expected[:200]!r}")
            for side, seconds, megabytes in zip(SIDES, (our_s, their_s), (our_mb, their_mb), strict=True):
                figures[f"{name}, s"][side].append(seconds)
                figures[f"{name}, MB of memory"][side].append(megabytes)
            print(
                f"round {number + 1}, {name}: Ottla {our_s:.2f} s, confluent-kafka and pandas {their_s:.1f} s",
                flush=True,
            )
    return {row: {side: statistics.median(times[side]) for side in SIDES} for row, times in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(STATEMENTS), default=list(STATEMENTS))
    parser.add_argument("--fill", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--answer", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fill:
        servers, topic = arguments.fill
        fill(servers, topic, arguments.records)
    elif arguments.answer:
        servers, topic, begun = arguments.answer
        answer(servers, topic, float(begun))
    else:
        with ottla() as broker:
            record(measure(broker, arguments.only, arguments.records, arguments.rounds))


if __name__ == "__main__":
    main()
