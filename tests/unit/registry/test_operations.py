"""Operations over a topic in memory: writes that fail, take long, or meet those of another registry."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from ottla.client.errors import KafkaError
from ottla.protocol.errors import MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS
from ottla.registry.operations import Operations, Posted
from ottla.registry.records import Record, SchemaValue, schema_record
from ottla.registry.refusals import Refusal
from ottla.registry.state import State
from ottla.schemas.registry import AVRO, Schema
from tests.unit.registry.virtual_topic import Inline

T = TypeVar("T")


class Topic:
    """A topic in memory. `before` is called before each write; what it raises is the outcome."""

    def __init__(self) -> None:
        self.state = State()
        self.leads = True
        self.writes = 0
        self.before: Callable[[], Awaitable[None]] | None = None

    async def renew(self) -> None:
        """Do nothing: each write is one of its own."""

    async def write(self, records: Sequence[Record]) -> None:
        self.writes += 1
        if self.before is not None:
            await self.before()
        await asyncio.sleep(0)
        for record in records:
            self.apply(record)

    def apply(self, record: Record) -> None:
        self.state.apply(record, self.state.end, 0)


def run(test: Callable[[Topic, Operations], Awaitable[T]], timeout_ms: int = 5_000) -> T:
    async def main() -> T:
        topic = Topic()
        operations = Operations(topic, Inline(), timeout_ms)
        try:
            return await test(topic, operations)
        finally:
            await operations.close()

    return asyncio.run(main())


def posted(subject: str, number: int = 1) -> Posted:
    return Posted(subject, Schema(AVRO, json.dumps({"type": "fixed", "name": "F", "size": number})))


def code_of(error: pytest.ExceptionInfo[Refusal]) -> int:
    return error.value.code


@pytest.mark.parametrize(("error", "code"), [(NOT_ENOUGH_REPLICAS, 50001), (MESSAGE_TOO_LARGE, 42209)])
def test_write_that_fails_registers_nothing(error: int, code: int) -> None:
    async def test(topic: Topic, operations: Operations) -> None:
        async def fail() -> None:
            raise KafkaError("no", error)

        topic.before = fail
        with pytest.raises(Refusal) as refused:
            await operations.register(posted("a"), normalize=False)
        assert code_of(refused) == code
        topic.before = None
        assert (await operations.register(posted("a"), normalize=False)).version == 1

    run(test)


def test_write_that_takes_long_keeps_the_next_ones_waiting() -> None:
    """Its id is not given to another schema, whatever becomes of it."""

    async def test(topic: Topic, operations: Operations) -> None:
        gate = asyncio.Event()

        async def wait() -> None:
            await gate.wait()

        topic.before = wait
        for number in (1, 2):
            with pytest.raises(Refusal) as refused:
                await operations.register(posted("a", number), normalize=False)
            assert (code_of(refused), refused.value.message) == (50002, "Register operation timed out")
        assert topic.writes == 1
        topic.before = None
        gate.set()
        value = await operations.register(posted("b", 3), normalize=False)
        assert value.id == 2
        first = topic.state.find_by_id(".", 1)
        assert first is not None
        assert json.loads(first.value.schema.text)["size"] == 1

    run(test, timeout_ms=100)


def test_id_that_another_registry_took_is_replaced() -> None:
    async def test(topic: Topic, operations: Operations) -> None:
        async def other() -> None:
            topic.before = None
            topic.apply(schema_record(SchemaValue("other", 1, 1, Schema(AVRO, '"int"'))))

        topic.before = other
        value = await operations.register(posted("a"), normalize=False)
        assert (value.id, topic.writes) == (2, 2)
        version = topic.state.latest("a")
        assert version is not None
        assert version.id == 2

    run(test)


def test_version_that_another_registry_may_overwrite_is_not_promised() -> None:
    async def test(topic: Topic, operations: Operations) -> None:
        async def lose() -> None:
            topic.leads = False

        topic.before = lose
        for _ in range(2):
            with pytest.raises(Refusal) as refused:
                await operations.register(posted("a"), normalize=False)
            assert code_of(refused) == 50004
            topic.state = State()
        assert topic.writes == 1

    run(test)


def test_registrations_at_once_have_ids_of_their_own() -> None:
    async def test(topic: Topic, operations: Operations) -> None:
        async def slow() -> None:
            await asyncio.sleep(0.001)

        topic.before = slow
        values = await asyncio.gather(
            *(
                operations.register(posted(f"s{number % 7}", number), normalize=False, force=True)
                for number in range(1, 50)
            )
        )
        assert sorted(value.id for value in values) == list(range(1, 50))
        assert len({(value.subject, value.version) for value in values}) == 49
        again = await asyncio.gather(
            *(operations.register(posted(f"s{number % 7}", number), normalize=False) for number in range(1, 50))
        )
        assert [value.id for value in again] == [value.id for value in values]

    run(test)


def test_same_schema_at_once_in_one_and_in_several_subjects() -> None:
    async def test(topic: Topic, operations: Operations) -> None:
        values = await asyncio.gather(
            *(operations.register(posted(subject), normalize=False) for subject in ("a", "a", "b", "b", "c"))
        )
        assert {value.id for value in values} == {1}
        assert topic.writes == 3

    run(test)


def test_request_that_ends_leaves_its_write() -> None:
    """A client that is gone after its request was sent may find it done."""

    async def test(topic: Topic, operations: Operations) -> None:
        begun, gate = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            begun.set()
            await gate.wait()

        topic.before = wait
        request = asyncio.create_task(operations.register(posted("a"), normalize=False))
        await begun.wait()
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        topic.before = None
        gate.set()
        assert (await operations.register(posted("b", 2), normalize=False)).id == 2
        assert topic.state.latest("a") is not None

    run(test)
