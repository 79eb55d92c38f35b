"""Throughput of `ottla serve --brokers 2` beside one broker, in turn, on the same cores.

    python bench/two_brokers.py [--rounds 5] [--megabytes 256]

One client (librdkafka) produces records of 1 KB with acks=1 to four partitions, then reads them back. Its own share of the
cores is a figure, because client and brokers share the machine.
"""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from brokers import READING, free_port, record, surroundings
from ottla import Admin, NewTopic

PARTITIONS = 4
VALUE = os.urandom(1024)


def measure(brokers: int, megabytes: int) -> dict[str, float]:
    home = tempfile.mkdtemp(prefix="ottla-bench-")
    port = free_port()
    command = [sys.executable, "-m", "ottla", "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", home]
    command += ["--log-level", "error", *(["--brokers", str(brokers)] if brokers > 1 else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        for _ in range(brokers):
            process.stdout.readline()  # each broker says where it listens
        servers = f"127.0.0.1:{port}"
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("bench", PARTITIONS, 1)]).check()
        produced = produce(servers, megabytes)
        return {**produced, **consume(servers, megabytes)}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()
        shutil.rmtree(home, ignore_errors=True)


def produce(servers: str, megabytes: int) -> dict[str, float]:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 5,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 1_000_000,
            "acks": "1",
        }
    )
    begun, cpu = time.perf_counter(), time.process_time()
    for number in range(megabytes * 1000):
        while True:
            try:
                producer.produce("bench", VALUE, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush(300)
    seconds = time.perf_counter() - begun
    return {
        "produce MB/s": megabytes * 1.024 / seconds,
        "producer, cores": (time.process_time() - cpu) / seconds,
    }


def consume(servers: str, megabytes: int) -> dict[str, float]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "fetch.message.max.bytes": 4_194_304,
            **READING,
        }
    )
    consumer.assign([TopicPartition("bench", index, 0) for index in range(PARTITIONS)])
    begun, cpu = time.perf_counter(), time.process_time()
    count = 0
    while count < megabytes * 1000:
        count += len(consumer.consume(min(10_000, megabytes * 1000 - count), 1))
    seconds = time.perf_counter() - begun
    consumer.close()
    return {
        "consume MB/s": megabytes * 1.024 / seconds,
        "consumer, cores": (time.process_time() - cpu) / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=256)
    options = parser.parse_args()
    runs: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for _ in range(options.rounds):
        for brokers, results in runs.items():
            results.append(measure(brokers, options.megabytes))
    medians = {
        f"{brokers} broker{'s' * (brokers > 1)}": {
            figure: round(statistics.median(run[figure] for run in results), 2) for figure in results[0]
        }
        for brokers, results in runs.items()
    }
    print(f"{'':24}" + "".join(f"{name:>12}" for name in medians))
    for figure in next(iter(medians.values())):
        print(f"{figure:24}" + "".join(f"{figures[figure]:>12}" for figures in medians.values()))
    record({"two brokers": medians, "rounds": options.rounds, "megabytes": options.megabytes, **surroundings()})


if __name__ == "__main__":
    main()
