"""Clients in Python of other projects that work while brokers are restarted: see `rolling_load`.

    python -m tests.crash.rolling_python_load SERVERS

It prints a line when all of them work. They go on until the standard input ends, and are checked then.
"""

import asyncio
import contextlib
import select
import sys
from functools import partial
from typing import Any, Final

import aiokafka
import kafka

from .replicated_load import PARTITIONS, Numbered
from .rolling_load import Load, Reader

_WITHIN_S: Final = 60


class KafkaPythonNumbered(Numbered):
    """kafka-python's idempotent producer."""

    def work(self) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self._servers.split(","), enable_idempotence=True, linger_ms=1)
        while not self.over.is_set():
            for _ in range(10):
                value = b"%d" % self.sent
                sent = producer.send(self._topic, value, partition=self.sent % PARTITIONS)
                sent.add_callback(partial(self._acknowledged, value))
                sent.add_errback(self._failures.append)
                self.sent += 1
            assert self._failures == []
            self.over.wait(self._pause_s)
        producer.flush(_WITHIN_S)
        producer.close()
        assert self._failures == []

    def _acknowledged(self, value: bytes, place: Any) -> None:
        self.acknowledged[place.partition][place.offset] = value


class AiokafkaNumbered(Numbered):
    """aiokafka's idempotent producer."""

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self._servers, enable_idempotence=True, linger_ms=1)
        await producer.start()
        waiting = []
        while not self.over.is_set():
            for _ in range(10):
                value = b"%d" % self.sent
                future = await producer.send(self._topic, value, partition=self.sent % PARTITIONS)
                waiting.append((value, future))
                self.sent += 1
            await asyncio.sleep(self._pause_s)
        for value, future in waiting:
            place = await asyncio.wait_for(future, _WITHIN_S)
            self.acknowledged[place.partition][place.offset] = value
        await producer.stop()


class KafkaPythonReader(Reader):
    """kafka-python's consumer."""

    def work(self) -> None:
        consumer = kafka.KafkaConsumer(
            self._topic,
            bootstrap_servers=self._servers.split(","),
            group_id="kafka-python",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        with contextlib.closing(consumer):
            while not self.over.is_set():
                # With 100 ms version 3.0.12 sometimes reads nothing for a minute when a broker is slow at the start.
                batches = consumer.poll(1000)
                for place, records in batches.items():
                    self.read[place.partition] += [(record.offset, record.value) for record in records]
                if batches:
                    consumer.commit()
                    self.commits += 1


class AiokafkaReader(Reader):
    """aiokafka's consumer."""

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._servers,
            group_id="aiokafka",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        while not self.over.is_set():
            batches = await consumer.getmany(timeout_ms=100)
            for place, records in batches.items():
                self.read[place.partition] += [(record.offset, record.value) for record in records]
            if batches:
                await consumer.commit()
                self.commits += 1
        await consumer.stop()


def main() -> None:
    """Run the clients."""
    servers = sys.argv[1]
    load = Load(servers)
    load.producers = {
        "kafka-python": KafkaPythonNumbered(servers, "kafka-python", 100),
        "aiokafka": AiokafkaNumbered(servers, "aiokafka", 100),
    }
    load.readers = {
        "kafka-python": KafkaPythonReader(servers, "kafka-python"),
        "aiokafka": AiokafkaReader(servers, "aiokafka"),
    }
    load.wait_until_working()
    sys.stdout.write("working\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        if failures := load.failures():
            raise SystemExit(f"clients have failed: {failures}")
    load.check()


if __name__ == "__main__":
    main()
