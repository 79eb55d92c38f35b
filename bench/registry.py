"""The schema registry beside Apicurio Registry 3.3.3: look-ups, registrations, and what a start takes.

    python bench/registry.py [--skip-apicurio] [--seconds 5]

cached GET/s      GET /schemas/ids/1 on four kept connections, each with one request in flight
p99 at 500/s      times of the same requests, 500 a second, from when each was due; in turns with
bare p99 at 500/s the same with a server that answers without reading: what the client and the machine add
registrations/s   new Avro schemas, each to a subject of its own, on eight connections
CPU us            CPU time of the registry's process for each such request: what one core can do, whoever else is at work
fixture ready ms  from the first `kafka.schema_registry_url` of a test to its value; median of twenty, after the first one
30,000 ready s    from the start of the process, with 30,000 versions in `_schemas`, until schemas can be registered
validation ns     what the rule that a value, or key and value, have a registered schema adds to the validation of a record in a
                  batch; the median of 300 batches of 500 records of 100 bytes and of 1 KB, which follow one without the rule

Ottla's registry is a process of its own, beside an Ottla broker; Apicurio keeps its schemas in memory and has no broker. It is
started by bench/reference/schema-registry (Java 21, in the environment variable JAVA).
"""

import argparse
import asyncio
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import uvloop

import brokers
from brokers import REFERENCE, Running, free_port, record
from ottla import Producer
from ottla.records.batch import build
from ottla.records.record import Header, Record
from ottla.records.schema_ids import TOPIC_NAME, FieldSchemas, SchemaRules
from ottla.records.validation import ProduceRules, prepare
from ottla.registry.records import SchemaValue, context_record, schema_record
from ottla.schemas.registry import AVRO, Schema
from ottla.testing import Kafka

APICURIO: Final = "Apicurio 3.3.3"
CONNECTIONS, WRITERS, RATE, STORED, TURNS = 4, 8, 500, 30_000, 3
RECORDS, VALIDATIONS = 500, 300
NOW, GUID = 1_700_000_000_000, b"g" * 16


class Registry(NamedTuple):
    """A registry that answers."""

    name: str
    url: str
    process: Running

    def cpu_us(self, work: Callable[[], float]) -> tuple[float, float]:
        """Return what `work` returns, requests a second, and the CPU time for each request."""
        begun, cpu = time.perf_counter(), self.process.cpu_seconds()
        rate = work()
        requests = rate * (time.perf_counter() - begun)
        return rate, (self.process.cpu_seconds() - cpu) / requests * 1e6


@contextmanager
def ottla() -> Iterator[Registry]:
    """Ottla's registry beside a broker."""
    with brokers.ottla() as broker, started(broker) as registry:
        yield registry


@contextmanager
def started(broker: Running) -> Iterator[Registry]:
    """Ottla's registry, ready."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "ottla", "schema-registry", "--log-level", "warning"]
    process = subprocess.Popen(
        [*command, "--bootstrap-server", broker.bootstrap_servers, "--listen", address],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise SystemExit("the registry has ended")
        yield Registry("Ottla", f"http://{address}", Running("registry", "", process.pid, 0))
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def apicurio() -> Iterator[Registry]:
    """Apicurio Registry."""
    directory = Path(tempfile.mkdtemp(prefix="apicurio-bench-"))
    script = str(REFERENCE / "schema-registry")
    url = subprocess.check_output([script, "start", str(free_port()), str(directory)], text=True).strip()
    try:
        pid = int((directory / "pid").read_text())
        yield Registry(APICURIO, url, Running("registry", "", pid, 0))
    finally:
        subprocess.run([script, "stop", str(directory)], check=False)
        shutil.rmtree(directory, ignore_errors=True)


class Connection:
    """A kept connection that sends prepared requests."""

    @classmethod
    async def open(cls, url: str) -> "Connection":
        parts = urlsplit(url)
        connection = cls()
        connection.reader, connection.writer = await asyncio.open_connection(parts.hostname, parts.port)
        return connection

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes) -> int:
        """Send a request, read the answer, and return its status."""
        self.writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        await self.reader.readexactly(length)
        return int(head[9:12])


def request_of(url: str, method: str, path: str, body: object = None) -> bytes:
    """Return a request as bytes."""
    parts = urlsplit(url)
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {parts.path}{path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def schema(number: int) -> dict[str, str]:
    """Return a body with a schema that no other number has."""
    fields = [{"name": name, "type": "long"} for name in ("id", "customer", f"amount{number}")]
    return {"schema": json.dumps({"type": "record", "name": "Order", "fields": fields})}


async def closed_loop(registry: Registry, requests: Iterator[bytes], connections: int, seconds: float) -> float:
    """Send requests without pauses; return how many a second were answered."""
    answered = 0
    end = time.perf_counter() + seconds

    async def client() -> None:
        nonlocal answered
        connection = await Connection.open(registry.url)
        while time.perf_counter() < end:
            status = await connection.ask(next(requests))
            if status != 200:
                raise SystemExit(f"{registry.name} answered {status}")
            answered += 1
        connection.writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))
    return answered / seconds


class Bare(asyncio.Protocol):
    """A connection that answers whatever arrives."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        del data
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" + b"x" * 100)


async def serve_bare(port: int) -> None:
    """Serve bare connections until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", port)
    print("serving", flush=True)
    await server.serve_forever()


@contextmanager
def bare() -> Iterator[str]:
    """Address of a bare server in a process of its own."""
    port = free_port()
    process = subprocess.Popen([sys.executable, __file__, "--bare", str(port)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def tails(url: str, request: bytes, seconds: float) -> tuple[float, float]:
    """Return the 99th percentiles in ms of a registry and of a bare server, which are asked in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    with bare() as other:
        for _ in range(TURNS):
            for address, kept in zip((url, other), times, strict=True):
                kept += uvloop.run(open_loop(address, request, seconds / TURNS))
    registry, floor = (statistics.quantiles(kept, n=100)[98] * 1000 for kept in times)
    return registry, floor


async def open_loop(url: str, request: bytes, seconds: float) -> list[float]:
    """Send requests at RATE; return their times."""
    connections: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(32):
        connections.put_nowait(await Connection.open(url))
    times: list[float] = []

    async def one(due: float) -> None:
        connection = await connections.get()
        await connection.ask(request)
        times.append(time.perf_counter() - due)
        connections.put_nowait(connection)

    begun = time.perf_counter()
    tasks = []
    for number in range(round(seconds * RATE)):
        due = begun + number / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    while not connections.empty():
        connections.get_nowait().writer.close()
    return times


def measured(registry: Registry, seconds: float) -> dict[str, float]:
    """Return the figures of a registry."""
    numbers = iter(range(10**9))

    def registrations() -> Iterator[bytes]:
        for number in numbers:
            yield request_of(registry.url, "POST", f"/subjects/s{number}/versions", schema(number))

    def repeated(request: bytes) -> Iterator[bytes]:
        while True:
            yield request

    written = registrations()
    uvloop.run(closed_loop(registry, written, WRITERS, min(seconds, 3)))  # warms up, and registers id 1
    get = request_of(registry.url, "GET", "/schemas/ids/1")
    uvloop.run(closed_loop(registry, repeated(get), CONNECTIONS, min(seconds, 3)))
    figures: dict[str, float] = {}
    rate, cpu = registry.cpu_us(lambda: uvloop.run(closed_loop(registry, repeated(get), CONNECTIONS, seconds)))
    figures |= {"cached GET/s": rate, "GET CPU us": cpu}
    figures["p99 at 500/s ms"], figures["bare p99 at 500/s ms"] = tails(registry.url, get, seconds)
    rate, cpu = registry.cpu_us(lambda: uvloop.run(closed_loop(registry, written, WRITERS, seconds)))
    return figures | {"registrations/s": rate, "registration CPU us": cpu}


def fixture_ms() -> float:
    """Return the median of how long `kafka.schema_registry_url` takes."""
    times = []
    for _ in range(21):
        with Kafka() as kafka:
            begun = time.perf_counter()
            assert kafka.schema_registry_url
            times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times[1:])


def ready_s() -> float:
    """Return how long a registry with STORED versions takes until it can register schemas."""
    with brokers.ottla() as broker:
        with started(broker):
            pass  # makes the topic
        with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=5) as producer:
            key, value = context_record(".other").encoded()
            producer.produce("_schemas", value, key=key)
            for number in range(STORED):
                stored = SchemaValue(
                    f"s{number // 3}", number % 3 + 1, number + 1, Schema(AVRO, schema(number)["schema"])
                )
                key, value = schema_record(stored).encoded()
                producer.produce("_schemas", value, key=key)
        begun = time.perf_counter()
        with started(broker):
            return time.perf_counter() - begun


class Validated(NamedTuple):
    """Records of a batch: what they have, and of which fields the schema must be registered.

    schemas  ids of the values, in turn
    """

    keys: bool = False
    headers: tuple[Header, ...] = ()
    schemas: tuple[int, ...] = (7,)

    def batch(self, size: int) -> bytes:
        """Return a batch with values of a size."""
        ids = itertools.cycle(self.schemas)
        key = framed(7, 20) if self.keys else None
        return build([Record(at, NOW, key, framed(next(ids), size), list(self.headers)) for at in range(RECORDS)])

    def rules(self) -> ProduceRules:
        """Return the rules of a topic with validation."""
        fields = {name: FieldSchemas("t", name, TOPIC_NAME) for name in ("key", "value")}
        for name, schemas in fields.items():
            for known in (7, 8, GUID):
                schemas.learn(known, frozenset({f"t-{name}"}), (), NOW)
        return ProduceRules(schemas=SchemaRules(fields["key"] if self.keys else None, fields["value"], lambda: NOW))


_OTHER_HEADERS: Final = (("trace-id", b"0123456789abcdef"), ("source", b"orders-service"))
VALIDATED: Final = {
    "one schema": Validated(),
    "two schemas in turn": Validated(schemas=(7, 8)),
    "two other headers": Validated(headers=_OTHER_HEADERS),
    "key, two other headers": Validated(keys=True, headers=_OTHER_HEADERS),
    "GUID in a header": Validated(headers=(("__value_schema_id", b"\1" + GUID),)),
}


def framed(number: int, size: int) -> bytes:
    """Return a value in the format of serializers."""
    return b"\0" + number.to_bytes(4, "big") + b"x" * (size - 5)


def validation_ns(batch: bytes, rules: ProduceRules) -> float:
    """Return how long the validation of a record takes."""
    begun = time.perf_counter_ns()
    result = prepare(batch, 0, len(batch), rules, NOW)
    took = time.perf_counter_ns() - begun
    assert result.error_code == 0
    assert not result.unknown
    return took / RECORDS


def validations() -> dict[str, list[float]]:
    """Return what validation costs a record of 100 bytes and of 1 KB."""
    figures = {}
    for name, validated in VALIDATED.items():
        with_rule, without = validated.rules(), ProduceRules()
        figures[f"validation ns at 100 B and 1 KB, {name}"] = [
            statistics.median(
                -validation_ns(batch, without) + validation_ns(batch, with_rule) for _ in range(VALIDATIONS)
            )
            for batch in (validated.batch(100), validated.batch(1000))
        ]
    return figures


def shown(value: float | list[float]) -> str:
    """Return a figure, or several, as text."""
    return " / ".join(f"{one:,.1f}" for one in (value if isinstance(value, list) else [value]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--skip-apicurio", action="store_true")
    parser.add_argument("--bare", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare is not None:
        uvloop.run(serve_bare(options.bare))
        return
    figures: dict[str, dict[str, float | list[float]]] = {}
    for side in (ottla,) if options.skip_apicurio else (ottla, apicurio):
        with side() as registry:
            figures[registry.name] = {**measured(registry, options.seconds)}
    figures["Ottla"] |= {"fixture ready ms": fixture_ms(), "30,000 ready s": ready_s(), **validations()}
    for name, row in figures.items():
        print(f"{name}: " + ", ".join(f"{key} {shown(value)}" for key, value in row.items()))
    record({"registries": figures})


if __name__ == "__main__":
    main()
