"""How administrative requests find the broker that answers them, and are repeated.

Three kinds: whichever broker (most of them), a node by number (its log directories), the coordinator of a group or of a
transactional id. Each is repeated until it succeeds or fails for good, as `Metadata.retrying` has it: a request about several
things repeats only those that may still succeed.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from ottla.client.admin.results import Results
from ottla.client.core import Core
from ottla.client.errors import KafkaError, RequestTimedOut, UnknownTopic, error_for
from ottla.client.metadata import GROUP
from ottla.protocol.errors import NONE, NOT_CONTROLLER, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.schema import Request

K = TypeVar("K")
V = TypeVar("V")


def refusal(code: int, about: str, message: str | None = None) -> KafkaError | None:
    """Why a part of a request failed, None if it did not. Nobody makes the topic that is missing while an administrator waits,
    so that is final."""
    if code == NONE:
        return None
    error = error_for(code, about, message)
    return UnknownTopic(str(error), code) if code in _FINAL else error


_FINAL: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID})


class Requests:
    """What all parts of the admin client stand on."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.metadata = core.metadata

    def limit_ms(self, timeout: float | None) -> int:
        """Seconds, or default.api.timeout.ms, as milliseconds."""
        return int(self.core.config["default.api.timeout.ms"]) if timeout is None else int(timeout * 1000)

    async def anywhere(self, about: str, request: Request, timeout: float | None) -> Any:
        """Ask whichever broker; the response, without a look at its errors."""
        return await self.metadata.retrying(about, lambda: self.metadata.ask(-1, request), self.limit_ms(timeout))

    async def controller(self, request: Request) -> Any:
        """Ask the controller: any broker passes it on since KRaft, only the controller itself did before."""
        node = self.metadata.controller
        if node not in self.metadata.network.brokers:
            await self.metadata.fetch([])
            node = self.metadata.controller
        return await self.metadata.ask(node if node in self.metadata.network.brokers else -1, request)

    def moved(self, code: int) -> None:
        """An answer had this code: another node is the controller now, perhaps."""
        if code == NOT_CONTROLLER:
            self.metadata.controller = -1

    async def at_coordinator(
        self, group_id: str, request: Request, timeout: float | None, code_of: Callable[[Any], tuple[int, str | None]]
    ) -> Any:
        """Ask the coordinator of a group. Raises the error that `code_of` finds in the answer."""

        async def attempt() -> Any:
            answer = await self.metadata.ask_coordinator(GROUP, group_id, request)
            code, message = code_of(answer)
            if code != NONE:
                self.metadata.elsewhere(GROUP, group_id, code)
                raise error_for(code, f"group {group_id}", message)
            return answer

        return await self.metadata.retrying(f"group {group_id}", attempt, self.limit_ms(timeout))

    async def each(self, keys: Iterable[K], one: Callable[[K], Awaitable[V]]) -> Results[K, V]:
        """`one(key)` for every key, side by side; what each returned or raised."""
        results = Results[K, V]()

        async def settle(key: K) -> None:
            try:
                results.put(key, await one(key))
            except KafkaError as error:
                results.errors[key] = error

        await self.core.scheduler.every([settle(key) for key in dict.fromkeys(keys)])
        return results

    async def repeating(
        self,
        about: str,
        keys: Iterable[K],
        ask: Callable[[list[K]], Awaitable[dict[K, V | KafkaError]]],
        timeout: float | None,
    ) -> Results[K, V]:
        """`ask(keys)` until none of them is missing or may still succeed."""
        results = Results[K, V]()
        left = list(dict.fromkeys(keys))

        async def attempt() -> None:
            nonlocal left
            found = await ask(left)
            again: list[K] = []
            last: KafkaError | None = None
            for key in left:
                outcome = found[key]
                if not isinstance(outcome, KafkaError):
                    results.put(key, outcome)
                elif outcome.retriable:
                    self.moved(outcome.code)
                    again.append(key)
                    last = outcome
                else:
                    results.errors[key] = outcome
            left = again
            if last is not None:
                raise last

        if left:
            try:
                await self.metadata.retrying(about, attempt, self.limit_ms(timeout))
            except RequestTimedOut as error:
                results.errors.update(dict.fromkeys(left, error))
        return results
