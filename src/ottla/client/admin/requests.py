"""Routing and retries of administrative requests.

Four destinations: any broker (most requests), a node by id (its log directories), the leaders of partitions, the coordinator
of a group or of a transactional id. Requests are retried by `Metadata.retrying` until they succeed or fail for good; a retry
of a request about several resources contains only those with a retriable error.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from ottla.client.admin.results import Results
from ottla.client.coordinator import GROUP, CoordinatorClient
from ottla.client.core import Core
from ottla.client.errors import KafkaError, Permission, RequestTimedOut, UnknownTopic, error_for
from ottla.client.topics import TopicPartition
from ottla.net.connection import Link
from ottla.protocol.errors import NONE, NOT_CONTROLLER, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.schema import Request, Response
from ottla.tasks.deferred import Deferred

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Response)


def refusal(code: int, about: str, message: str | None = None, *needed: Permission) -> KafkaError | None:
    """Return the error of one resource of a request, None if it succeeded. A missing topic is a final error, although its
    code is retriable: no retry would create it."""
    if code == NONE:
        return None
    error = error_for(code, about, message, *needed)
    return UnknownTopic(str(error), code) if code in _FINAL else error


_NEWEST: Final = 32767
_FINAL: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID})


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group the numbers of partitions by topic."""
    indexes: dict[str, list[int]] = {}
    for partition in partitions:
        indexes.setdefault(partition.topic, []).append(partition.partition)
    return indexes


class UnknownNode(KafkaError):
    """No broker of the cluster has this node id."""

    @property
    def retriable(self) -> bool:
        return False


class Requests:
    """Shared base of all parts of the admin client: sends requests to the right broker and retries them."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.metadata = core.metadata

    def limit_ms(self, timeout: float | None) -> int:
        """Convert a timeout in seconds to ms; None is default.api.timeout.ms."""
        return int(self.core.config["default.api.timeout.ms"]) if timeout is None else int(timeout * 1000)

    async def anywhere(self, about: str, request: Request[R], timeout: float | None) -> R:
        """Send a request to any broker; return the response, whose errors are not checked."""
        return await self.metadata.retrying(about, lambda: self.metadata.ask(-1, request), self.limit_ms(timeout))

    async def controller_link(self) -> Link:
        """Return a connection to the controller, or to any broker if the cluster uses KRaft: brokers forward requests."""
        node = self.metadata.controller
        if node not in self.metadata.network.brokers:
            await self.metadata.fetch([])
            node = self.metadata.controller
        if node in self.metadata.network.brokers:
            return await self.metadata.network.ready(node)
        return await self.metadata.any_link()

    async def controller(self, request: Request[R]) -> R:
        """Send a request to the controller; return the response."""
        link = await self.controller_link()
        return await link.request(request, link.version(type(request)))

    def forget_moved_controller(self, code: int) -> None:
        """Forget the controller if an error code shows that another node has its role now."""
        if code == NOT_CONTROLLER:
            self.metadata.controller = -1

    async def at_coordinator(
        self,
        key: str,
        request: Request[R] | Callable[[Link], Request[R]],
        timeout: float | None,
        code_of: Callable[[R], tuple[int, str | None]],
        *,
        kind: int = GROUP,
        newest: int = _NEWEST,
        operation: str = "Describe",
    ) -> R:
        """Send a request to the coordinator of a group or transactional id; return the response.

        request  request, or a function that builds it for a connection, if its content depends on the version
        code_of  function that returns the error code and message of the response, which are raised as an error
        newest   newest version of the request that the caller supports
        operation  permission on the group or transactional id that the request needs
        """
        permission = Permission(operation, "group" if kind == GROUP else "transactional-id", (key,))
        about = f"{'group' if kind == GROUP else 'transactional id'} {key}"
        coordinator = self.coordinator(key, kind)

        async def attempt() -> R:
            link = await coordinator.link()
            sent = request if isinstance(request, Request) else request(link)
            answer = await coordinator.response(link.request(sent, link.version(type(sent), newest)))
            code, message = code_of(answer)
            coordinator.check(code, about, message, permission)
            return answer

        return await self.metadata.retrying(about, attempt, self.limit_ms(timeout))

    def coordinator(self, key: str, kind: int = GROUP) -> CoordinatorClient:
        """Return a client of the coordinator of a group or transactional id."""
        return CoordinatorClient(self.metadata, kind, key)

    async def nodes(self) -> list[int]:
        """Return the node ids of the current brokers."""
        await self.metadata.fetch([])
        return sorted(self.metadata.network.brokers)

    async def node_link(self, node: int) -> Link:
        """Return the connection to a broker by node id. Raises UnknownNode for an unknown id."""
        if node not in self.metadata.network.brokers and node not in await self.nodes():
            raise UnknownNode(f"there is no broker {node}")
        return await self.metadata.network.ready(node)

    async def on_node(self, node: int, request: Request[R], newest: int = _NEWEST) -> R:
        """Send a request to a broker by node id; return the response."""
        link = await self.node_link(node)
        return await link.request(request, link.version(type(request), newest))

    async def side_by_side(self, coroutines: Iterable[Coroutine[Deferred[Any], Any, V]]) -> list[V]:
        """Run coroutines concurrently; return their results in order."""
        return await self.core.scheduler.every(coroutines)

    async def at_leaders(
        self,
        about: str,
        partitions: Iterable[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[dict[TopicPartition, V | KafkaError]]],
        timeout: float | None,
    ) -> Results[TopicPartition, V]:
        """Call `ask(node, partitions)` for each leader; retry the partitions with a retriable error, such as a moved leader."""

        async def one(node: int, its: list[TopicPartition]) -> dict[TopicPartition, V | KafkaError]:
            try:
                return await ask(node, its)
            except KafkaError as error:
                return dict.fromkeys(its, error)

        async def round_of(left: list[TopicPartition]) -> dict[TopicPartition, V | KafkaError]:
            outcomes: dict[TopicPartition, V | KafkaError] = {}
            by_node: dict[int, list[TopicPartition]] = {}
            for partition in left:
                try:
                    by_node.setdefault(await self.metadata.leader(partition), []).append(partition)
                except KafkaError as error:
                    outcomes[partition] = error
            for answer in await self.side_by_side([one(node, its) for node, its in by_node.items()]):
                outcomes |= answer
            for partition, outcome in outcomes.items():
                if isinstance(outcome, KafkaError) and outcome.retriable:
                    self.metadata.forget(partition.topic)
            return outcomes

        return await self.repeating(about, partitions, round_of, timeout)

    async def for_each(self, keys: Iterable[K], one: Callable[[K], Awaitable[V]]) -> Results[K, V]:
        """Call `one(key)` for every key concurrently; return the results and errors."""
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
        """Call `ask(keys)` until every key has a result or an error that is not retriable."""
        results = Results[K, V]()
        left = list(dict.fromkeys(keys))

        async def attempt() -> None:
            nonlocal left
            outcomes = await ask(left)
            again: list[K] = []
            last: KafkaError | None = None
            for key in left:
                outcome = outcomes[key]
                if not isinstance(outcome, KafkaError):
                    results.put(key, outcome)
                elif outcome.retriable:
                    self.forget_moved_controller(outcome.code)
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
