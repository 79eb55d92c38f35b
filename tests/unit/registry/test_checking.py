"""The process in which a registry checks schemas: small ones in its own, others in a separate one that is reused."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from ottla.registry.checking import Checking
from ottla.registry.refusals import Refusal
from ottla.schemas.budget import Budget, TooComplex

LARGE = "x" * 20_000


def process_of(text: str, steps: int = 0) -> int:
    """Return the process in which this runs, after some steps of a check."""
    del text
    Budget().spend(steps)
    return os.getpid()


def swallowing(text: str) -> int:
    """Go on after a budget has ended, as a check does that answers with an error of its own."""
    try:
        return process_of(text, 3_000)
    except TooComplex:
        return -1


def refuse(text: str) -> None:
    raise Refusal(42201, f"Invalid schema {text[:3]}")


def kill(text: str) -> None:
    del text
    os.kill(os.getpid(), signal.SIGKILL)


def run(test: Callable[[Checking], Awaitable[None]]) -> None:
    async def main() -> None:
        checking = Checking()
        try:
            await test(checking)
        finally:
            checking.close()

    asyncio.run(main())


def test_small_check_runs_here_and_others_in_one_process() -> None:
    async def test(checking: Checking) -> None:
        assert await checking.run(partial(process_of, "x", 2_000)) == os.getpid()
        others = [
            await checking.run(partial(process_of, LARGE)),
            await checking.run(partial(process_of, text=LARGE)),
            await checking.run(partial(process_of, "x", 2_001)),  # more steps than a check may take here
            await checking.run(partial(swallowing, "x")),
        ]
        assert len(set(others)) == 1
        assert others[0] not in (os.getpid(), -1)

    run(test)


@pytest.mark.parametrize("text", ["abcd", LARGE])
def test_error_of_a_check_is_raised(text: str) -> None:
    async def test(checking: Checking) -> None:
        with pytest.raises(Refusal) as refused:
            await checking.run(partial(refuse, text))
        assert (refused.value.code, refused.value.message) == (42201, f"Invalid schema {text[:3]}")
        with pytest.raises(TooComplex):
            await checking.run(partial(process_of, text, 1_000_000))

    run(test)


def test_process_that_dies_is_replaced() -> None:
    async def test(checking: Checking) -> None:
        first = await checking.run(partial(process_of, LARGE))
        with pytest.raises(Refusal) as refused:
            await checking.run(partial(kill, LARGE))
        assert refused.value.code == 42201
        assert await checking.run(partial(process_of, LARGE)) != first

    run(test)


def test_process_ends_with_the_registry() -> None:
    numbers: list[int] = []

    async def test(checking: Checking) -> None:
        numbers.append(await checking.run(partial(process_of, LARGE)))

    run(test)
    with pytest.raises(ProcessLookupError):
        os.kill(numbers[0], 0)
