"""The end of clients: every public method of every client, after each way in which it can no longer be used.

A row is a method; its client is closed, was made in another event loop, is closed by another thread or task while the method
waits, or the interpreter ends. Nothing may wait for ever, and the error says what was wrong.
"""

import asyncio
import contextlib
import gc
import inspect
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import pytest

import ottla
from ottla import aio
from ottla.client import blocking
from ottla.client.errors import IllegalState, KafkaError
from ottla.client.groups import GroupMetadata
from ottla.client.topics import TopicPartition
from ottla.environment.thread import LoopThread
from tests.client.conftest import fresh

KINDS: Final = ("Producer", "Consumer", "ShareConsumer", "Admin")
USABLE_WHEN_CLOSED: Final = frozenset({"close", "closed", "config", "call_from_thread"})
ARGUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "acknowledge": (None,),
    "assign": ([TopicPartition("t", 0)],),
    "beginning_offsets": ([TopicPartition("t", 0)],),
    "committed": ([TopicPartition("t", 0)],),
    "end_offsets": ([TopicPartition("t", 0)],),
    "high_watermark": (TopicPartition("t", 0),),
    "lag": (TopicPartition("t", 0),),
    "offsets_for_times": ({TopicPartition("t", 0): 0},),
    "partitions_for": ("t",),
    "pause": ([TopicPartition("t", 0)],),
    "position": (TopicPartition("t", 0),),
    "produce": ("t", "v"),
    "produce_many": ("t", ["v"]),
    "resume": ([TopicPartition("t", 0)],),
    "seek": (TopicPartition("t", 0), 0),
    "send": ("t", "v"),
    "send_offsets_to_transaction": ({}, GroupMetadata("g")),
    "set_acknowledgement_commit_callback": (None,),
    "subscribe": (["t"],),
}
"""Of methods of producers and consumers; those of the admin clients are made up."""
SECONDS: Final = 5.0
"""In which every call has to end. Most end at once, and so do the programs, but for the start of their interpreter."""
PROGRAM_SECONDS: Final = 20.0


def configs(kind: str, bootstrap_servers: str, name: str = "") -> dict[str, str]:
    client_configs = {"bootstrap.servers": bootstrap_servers}
    if "transaction" in name:
        client_configs["transactional.id"] = fresh("x")
    return client_configs | {"group.id": fresh("g")} if kind.endswith("Consumer") else client_configs


def methods(client_class: type) -> list[str]:
    """Names of the public methods and properties."""
    return [name for name in dir(client_class) if not name.startswith("_") and name not in USABLE_WHEN_CLOSED]


def arguments(client_class: type, name: str) -> tuple[Any, ...]:
    if name in ARGUMENTS or not client_class.__name__.startswith("Admin"):
        return ARGUMENTS.get(name, ())
    parameters = list(inspect.signature(getattr(client_class, name)).parameters.values())[1:]
    return tuple(
        []
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    )


def use(client: Any, name: str) -> Any:
    """Call a method, or read a property. A table for producing needs pyarrow."""
    if name == "produce_arrow":
        return client.produce_arrow(pytest.importorskip("pyarrow").table({"value": ["v"], "topic": ["t"]}))
    attribute = getattr(client, name)
    return attribute(*arguments(type(client), name)) if callable(attribute) else attribute


BLOCKING: Final = [(kind, name) for kind in KINDS for name in methods(getattr(blocking, kind))]
ASYNCHRONOUS: Final = [(kind, name) for kind in KINDS for name in methods(getattr(aio, kind))]


@pytest.mark.parametrize(("kind", "name"), BLOCKING)
def test_a_closed_client_refuses(bootstrap_servers: str, kind: str, name: str) -> None:
    client = getattr(blocking, kind)(configs(kind, bootstrap_servers))
    client.close()
    client.close()
    assert client.closed
    begun = time.monotonic()
    with pytest.raises(IllegalState, match=f"this {kind} is closed"):
        use(client, name)
    assert time.monotonic() - begun < SECONDS


async def result_of(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


@pytest.mark.parametrize(("kind", "name"), ASYNCHRONOUS)
def test_a_closed_asyncio_client_refuses(bootstrap_servers: str, kind: str, name: str) -> None:
    async def main() -> None:
        client = getattr(aio, kind)(configs(kind, bootstrap_servers))
        await client.close()
        await client.close()
        assert client.closed
        with pytest.raises(IllegalState, match=f"this {kind} is closed"):
            await result_of(use(client, name))

    asyncio.run(asyncio.wait_for(main(), SECONDS))


@pytest.mark.parametrize("is_over", [True, False])
@pytest.mark.parametrize(("kind", "name"), [*ASYNCHRONOUS, *((kind, "close") for kind in KINDS)])
def test_an_asyncio_client_refuses_another_event_loop(
    bootstrap_servers: str, kind: str, name: str, is_over: bool
) -> None:
    loop = asyncio.new_event_loop()

    async def make() -> Any:
        return getattr(aio, kind)(configs(kind, bootstrap_servers, name))

    async def elsewhere() -> None:
        with pytest.raises(IllegalState, match=f"this {kind} was made in another event loop"):
            await result_of(use(client, name))

    client = loop.run_until_complete(make())
    if is_over:
        loop.close()
    asyncio.run(asyncio.wait_for(elsewhere(), SECONDS))
    if is_over:
        with pytest.raises(IllegalState, match="another event loop"):
            asyncio.run(client.close())
        with pytest.warns(ResourceWarning, match=f"unclosed {kind}"):  # noqa: PT031
            del client
            gc.collect()
    else:
        loop.run_until_complete(client.close())
        loop.close()


Waiting = Callable[[Any], Any]
WAITS: Final[dict[str, tuple[str, Waiting]]] = {
    "poll": ("Consumer", lambda consumer: consumer.poll()),
    "consume": ("Consumer", lambda consumer: consumer.consume(5)),
    "poll_arrow": ("Consumer", lambda consumer: consumer.poll_arrow()),
    "share poll": ("ShareConsumer", lambda consumer: consumer.poll()),
    "produce": ("Producer", lambda producer: producer.produce("no.such.topic", "v")),
    "partitions_for": ("Producer", lambda producer: producer.partitions_for("no.such.topic")),
    "flush": ("Producer", lambda producer: producer.flush()),
}


def waiting_client(module: Any, kind: str, bootstrap_servers: str, name: str, topic: str) -> Any:
    client_configs = configs(kind, bootstrap_servers)
    if kind == "Producer":
        client_configs |= {"linger.ms": "600000", "delivery.timeout.ms": "900000"}
        if name != "flush":  # nobody answers there
            client_configs["bootstrap.servers"] = "127.0.0.1:1"
    client = getattr(module, kind)(client_configs)
    if kind != "Producer":
        client.subscribe([topic])
    return client


@pytest.mark.parametrize("name", [name for name in WAITS if name != "flush"])
def test_a_call_that_waits_ends_when_another_thread_closes_the_client(
    bootstrap_servers: str, topic: str, name: str
) -> None:
    kind, wait = WAITS[name]
    client = waiting_client(blocking, kind, bootstrap_servers, name, topic)
    outcomes: list[BaseException] = []

    def call() -> None:
        try:
            wait(client)
        except BaseException as error:  # noqa: BLE001
            outcomes.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.3)
    client.close(timeout=1)
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert [type(error) for error in outcomes] == [IllegalState]
    assert str(outcomes[0]) == f"this {kind} is closed"


@pytest.mark.parametrize("name", [name for name in WAITS if name != "flush"])
def test_a_call_that_waits_ends_when_another_task_closes_the_client(
    bootstrap_servers: str, topic: str, name: str
) -> None:
    kind, wait = WAITS[name]

    async def main() -> None:
        client = waiting_client(aio, kind, bootstrap_servers, name, topic)
        task = asyncio.ensure_future(wait(client))
        await asyncio.sleep(0.3)
        await client.close(timeout=1)
        with pytest.raises(IllegalState, match=f"this {kind} is closed"):
            await asyncio.wait_for(task, SECONDS)

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["Consumer", "ShareConsumer"])
def test_iteration_ends_when_the_consumer_is_closed(bootstrap_servers: str, topic: str, kind: str) -> None:
    async def read(client: Any) -> list[Any]:
        return [record async for record in client]

    async def main() -> None:
        client = waiting_client(aio, kind, bootstrap_servers, "", topic)
        task = asyncio.ensure_future(read(client))
        await asyncio.sleep(0.3)
        await asyncio.wait_for(client.close(), SECONDS)
        assert await asyncio.wait_for(task, SECONDS) == []
        with pytest.raises(IllegalState, match="is closed"):
            await read(client)

    asyncio.run(main())
    client = waiting_client(blocking, kind, bootstrap_servers, "", topic)
    thread = threading.Thread(target=list, args=(client,))
    thread.start()
    time.sleep(0.3)
    begun = time.monotonic()
    client.close()
    assert time.monotonic() - begun < SECONDS
    thread.join(SECONDS)
    assert not thread.is_alive()
    with pytest.raises(IllegalState, match="is closed"):
        next(iter(client))


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_can_be_closed_by_many_at_once(bootstrap_servers: str, kind: str) -> None:
    client = getattr(blocking, kind)(configs(kind, bootstrap_servers))
    errors: list[BaseException] = []

    def close() -> None:
        try:
            client.close()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert errors == []
    assert client.closed

    async def main() -> None:
        client = getattr(aio, kind)(configs(kind, bootstrap_servers))
        await asyncio.gather(*(client.close() for _ in range(4)))

    asyncio.run(asyncio.wait_for(main(), SECONDS))


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], timeout=PROGRAM_SECONDS, capture_output=True, text=True, check=False
    )


def test_loops_of_clients_stop_before_the_interpreter_ends(bootstrap_servers: str) -> None:
    """A timer of uvloop that ran after it was a segmentation fault. Other threads wait on, and the last calls do not."""
    ended = run(f"""
import atexit, threading
def at_the_end():
    print(consumer._thread.has_ended, consumer._thread.loop.is_running())
    try:
        consumer.poll(1)
    except ottla.client.errors.IllegalState as error:
        print(error)
    consumer.close()
    print(consumer.closed)
atexit.register(at_the_end)  # before those of Ottla, and so called after them
import ottla, ottla.client.errors
consumer = ottla.Consumer(bootstrap_servers={bootstrap_servers!r}, group_id="g", enable_metrics_push=False)
consumer.subscribe(["t"])
polling = ottla.Consumer(bootstrap_servers={bootstrap_servers!r}, group_id="h", enable_metrics_push=False)
polling.subscribe(["t"])
threading.Thread(target=lambda: [polling.poll(0.01) for _ in iter(int, 1)], daemon=True).start()
""")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.fullmatch("True False\nthe interpreter is ending.*\nTrue\n", ended.stdout)


@pytest.mark.parametrize("call", ["close()", "close(2)", "__exit__(None, None, None)"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_is_closed_by_a_finalizer_at_the_end_of_the_interpreter(
    bootstrap_servers: str, kind: str, call: str
) -> None:
    if kind == "Admin" and call == "close(2)":
        call = "close()"
    ended = run(f"""
import ottla
class Holder:
    def __init__(self): self.client = ottla.{kind}({configs(kind, bootstrap_servers)!r})
    def __del__(self): self.client.{call}
holder = Holder()
""")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("kind", "call"),
    [("Producer", "flush(2)"), ("Consumer", "poll()"), ("ShareConsumer", "poll()"), ("Admin", "describe_cluster()")],
)
def test_a_call_of_a_finalizer_at_the_end_of_the_interpreter_is_refused(
    bootstrap_servers: str, kind: str, call: str
) -> None:
    ended = run(f"""
from ottla import KafkaError, {kind}
class Holder:
    def __init__(self): self.client = {kind}({configs(kind, bootstrap_servers)!r})
    def __del__(self):
        try: self.client.{call}
        except KafkaError as error: print(error)
holder = Holder()
""")
    assert ended.returncode == 0
    assert ended.stdout.startswith("the interpreter is ending")


def test_a_program_ends_with_an_unfinished_generator_over_a_consumer(
    bootstrap_servers: str, topic: str, produce: Any
) -> None:
    produce(topic, 3)
    ended = run(f"""
from ottla import Consumer
def records():
    with Consumer(bootstrap_servers={bootstrap_servers!r}, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([{topic!r}])
        for record in consumer: yield record
found = records(); print(next(found).value)
""")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "b'v0'\n", "")


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("", "ottla: the program ends with 2 records that have no acknowledgement and may be lost"),
        ("raise SystemExit(3)", "ottla: the program ends with 2 records"),
        ("producer.flush()", ""),
        ("producer.close()", ""),
        ("del producer; import time; time.sleep(1)", "ResourceWarning: unclosed Producer"),
    ],
)
def test_a_program_tells_which_records_it_leaves_behind(
    bootstrap_servers: str, topic: str, read: Any, end: str, text: str
) -> None:
    ended = run(f"""
import warnings; warnings.simplefilter("always")
from ottla import Producer
producer = Producer(bootstrap_servers={bootstrap_servers!r}, linger_ms=60_000)
producer.produce({topic!r}, "a", partition=0)
producer.produce({topic!r}, "b", partition=0)
{end}
""")
    assert ended.stderr.count("\n") == (1 if text.startswith("ottla") else 0) or "ResourceWarning" in text
    assert text in ended.stderr
    if not text.startswith("ottla"):
        assert [record.value for record in read(topic, 2)] == [b"a", b"b"]


@pytest.fixture
def ignored_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def sockets() -> int:
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
    return count


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
@pytest.mark.parametrize("kind", KINDS)
def test_sockets_of_a_dropped_client_are_closed(bootstrap_servers: str, topic: str, kind: str) -> None:
    def drop(keeper: ottla.Admin) -> None:
        with pytest.warns(ResourceWarning, match=f"unclosed {kind} .*: call close"):  # noqa: PT031
            for _ in range(10):
                client = getattr(ottla, kind)(configs(kind, bootstrap_servers))
                if kind == "Producer":
                    client.send(topic, "v").result(SECONDS)
                elif kind == "Admin":
                    client.describe_cluster()
                else:
                    client.subscribe([topic])
                    client.poll(0.2)
            del client
            gc.collect()
        assert not keeper.closed

    with ottla.Admin(bootstrap_servers=bootstrap_servers) as keeper:
        keeper.describe_cluster()
        before = sockets()
        drop(keeper)
        end = time.monotonic() + SECONDS
        while sockets() > before and time.monotonic() < end:
            time.sleep(0.02)
        assert sockets() <= before


@pytest.mark.usefixtures("ignored_warnings")
def test_a_dropped_producer_delivers_its_records(bootstrap_servers: str, topic: str, read: Any) -> None:
    producer = ottla.Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000)
    producer.produce(topic, "v", partition=0)
    del producer
    gc.collect()
    assert [record.value for record in read(topic, 1)] == [b"v"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_asyncio_client_closes_its_connections(bootstrap_servers: str, kind: str) -> None:
    async def main() -> None:
        client = getattr(aio, kind)(configs(kind, bootstrap_servers))
        core = client._core
        with pytest.warns(ResourceWarning, match=f"unclosed {kind}"):  # noqa: PT031
            del client
            gc.collect()
        end = time.monotonic() + SECONDS
        while not core.network.closed and time.monotonic() < end:
            await asyncio.sleep(0.01)
        assert core.network.closed

    asyncio.run(main())


BAD: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("Producer", {"partitioner": "nothing"}),
    ("Producer", {"security_protocol": "SASL_PLAINTEXT"}),
    ("Consumer", {"security_protocol": "SASL_SSL"}),
    ("ShareConsumer", {}),
    ("Admin", {"sasl_jaas_config": "nothing", "security_protocol": "SASL_PLAINTEXT"}),
)


@pytest.mark.parametrize(("kind", "options"), BAD)
def test_a_client_that_cannot_be_made_leaves_nothing_behind(
    bootstrap_servers: str, kind: str, options: dict[str, Any]
) -> None:
    """And warns of nothing: the error says what was wrong."""
    users = 0 if LoopThread._shared is None else LoopThread._shared._users
    with pytest.raises((KafkaError, TypeError, ValueError)):
        getattr(ottla, kind)(bootstrap_servers=bootstrap_servers, **options)
    gc.collect()
    assert (0 if LoopThread._shared is None else LoopThread._shared._users) == users

    async def main() -> None:
        with pytest.raises((KafkaError, TypeError, ValueError)):
            getattr(aio, kind)(bootstrap_servers=bootstrap_servers, **options)
        gc.collect()

    asyncio.run(main())


@pytest.mark.parametrize("timeout", [float("inf"), timedelta(seconds=30), timedelta.max, 1e300])
def test_timeouts_may_be_infinite_and_timedeltas(
    bootstrap_servers: str, topic: str, produce: Any, timeout: Any
) -> None:
    produce(topic, 2)
    with ottla.Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        assert consumer.poll(timeout) is not None
        assert len(consumer.consume(1, timeout)) == 1
        assert consumer.position(TopicPartition(topic, 0), timeout) == 2
    with ottla.Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.produce(topic, "v")
        assert producer.flush(timeout) == 0
        producer.close(timeout)

    async def main() -> None:
        async with aio.Consumer(bootstrap_servers=bootstrap_servers) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek_to_beginning()
            assert await consumer.poll(timeout) is not None

    asyncio.run(asyncio.wait_for(main(), SECONDS))


@pytest.mark.parametrize(
    ("timeout", "error"), [("1", TypeError), (float("nan"), ValueError), ([], TypeError), (1j, TypeError)]
)
def test_invalid_timeouts_are_refused(bootstrap_servers: str, timeout: Any, error: type[Exception]) -> None:
    with ottla.Consumer(bootstrap_servers=bootstrap_servers, group_id=fresh("g")) as consumer:
        for call in (consumer.poll, consumer.consume, consumer.poll_batches, consumer.close):
            with pytest.raises(error, match="a timeout is a number of seconds"):
                call(timeout=timeout)


def test_consume_of_0_records_returns_an_empty_list(bootstrap_servers: str, topic: str) -> None:
    with ottla.Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.consume(0) == []
        assert consumer.consume(0, timeout=0) == []
        with pytest.raises(ValueError, match="0 or more"):
            consumer.consume(-1)

    async def main() -> None:
        async with aio.Consumer(bootstrap_servers=bootstrap_servers) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert await consumer.consume(0) == []

    asyncio.run(asyncio.wait_for(main(), SECONDS))


@pytest.mark.parametrize(
    ("library", "module", "function", "name"),
    [
        ("gevent", "gevent.monkey", "is_module_patched", "threading"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched", "thread"),
    ],
)
@pytest.mark.parametrize("is_real", [False, True])
def test_threads_that_are_greenlets_are_refused(
    bootstrap_servers: str, library: str, module: str, function: str, name: str, is_real: bool
) -> None:
    """With the library where it is installed, else with what the client asks of it."""
    if is_real:
        pytest.importorskip(library)
    patch = {
        "gevent": "from gevent import monkey; monkey.patch_all(",
        "eventlet": "import eventlet; eventlet.monkey_patch(",
    }
    fake = f"""
import sys, types
sys.modules[{module!r}] = types.SimpleNamespace({function}=lambda name: name == {name!r})
"""
    program = f"""
from ottla import KafkaError, Producer
try:
    with Producer(bootstrap_servers={bootstrap_servers!r}) as producer:
        print(producer.partitions_for("x"))
except KafkaError as error:
    print(error)
"""
    ended = run((patch[library] + ")" if is_real else fake) + program)
    assert ended.stdout.startswith(f"{library} has replaced threads"), ended.stderr
    if is_real:
        assert run(patch[library] + "thread=False)" + program).stdout == "[0]\n"


def test_every_method_is_in_the_tables() -> None:
    """And every error is one that users catch."""
    assert issubclass(IllegalState, KafkaError)
    for module, table in ((blocking, BLOCKING), (aio, ASYNCHRONOUS)):
        for kind in KINDS:
            public = {name for name in vars(getattr(module, kind)) if not name.startswith("_")}
            assert public - USABLE_WHEN_CLOSED <= {name for row, name in table if row == kind}


@pytest.mark.filterwarnings("ignore:.*olicy:DeprecationWarning")
def test_a_client_ends_under_an_event_loop_policy_that_was_set_while_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn sets uvloop's policy: the thread of a client, whose loop was of the old one, ended with a RuntimeError."""

    class Strict(asyncio.DefaultEventLoopPolicy):
        def get_event_loop(self) -> asyncio.AbstractEventLoop:
            raise RuntimeError("there is no current event loop")

    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    before = asyncio.get_event_loop_policy()
    thread = LoopThread("ottla-client")
    try:
        asyncio.set_event_loop_policy(Strict())
        thread.loop.call_soon_threadsafe(thread.loop.stop)
        thread._runner.join(10)
    finally:
        asyncio.set_event_loop_policy(before)
    assert failures == []
