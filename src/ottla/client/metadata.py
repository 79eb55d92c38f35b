"""Metadata cache of one client: brokers, topics, leaders, coordinators; and the retries of requests.

Strategy. Topics are requested when they are needed, and again when they are metadata.max.age.ms old or a response shows that
they are stale (NOT_LEADER_OR_FOLLOWER, a broken connection); concurrent callers share one request. Brokers are tried in this
order: one with an open connection, those of the last metadata, the bootstrap servers. The client starts again from the
bootstrap servers when no broker of the metadata can be reached (KIP-899), when an address leads to another broker or cluster
than before (KIP-1242), or when no metadata was received for metadata.recovery.rebootstrap.trigger.ms (KIP-1102).

A deleted and recreated topic has a new id under the same name. Ids have no order, so a response does not show which of two
ids is the newer one, and a broker that lags behind (one that was frozen) returns the id of the deleted topic. So a changed id
is adopted only when a second broker, queried at once, returns it as well. The replaced id is rejected for half a minute, while
several brokers may lag. The rejection expires: if lagging brokers had been queried first, the existing topic would otherwise
stay rejected for good.

Retriable errors are retried with exponential backoff and jitter (KIP-580) until the caller's timeout; the error then names
the error of the last attempt.

One file, because the order in which brokers are tried is one rule over the cache, the retries and the bootstrap servers.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from ottla.addresses import address_text
from ottla.client.config import ClientConfig
from ottla.client.errors import (
    BootstrapUnresolved,
    BrokersUnreachable,
    ConnectionLost,
    KafkaError,
    Permission,
    RebootstrapRequired,
    RequestTimedOut,
    StaleMetadata,
    UnknownTopic,
    error_for,
)
from ottla.client.missing_topics import MissingTopics, topic_error
from ottla.client.topics import TopicInfo, TopicPartition
from ottla.environment import Address, Random
from ottla.net.connection import Link
from ottla.net.network import Network
from ottla.protocol.errors import (
    NONE,
    REBOOTSTRAP_REQUIRED,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.schema import ZERO_UUID, Request, Response
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Scheduler, Task

T = TypeVar("T")
R = TypeVar("R", bound=Response)
_OLDEST_WITH_EPOCHS: Final = 9
"""Older versions return leader epochs that are not reliable (KAFKA-9212)."""
_ANSWER_WITHIN_MS: Final = 3000
"""Time for one broker to respond before another one is queried as well."""
_WATCH_EVERY_MS: Final = 2000
_RETIRED_MS: Final = 30_000
"""Time for which the id of a deleted topic is not accepted again: brokers may lag behind."""


logger = logging.getLogger("ottla.client")


class Metadata:
    """Metadata of the cluster, cached by one client.

    controller  node id of the controller, -1 if unknown
    version     changes with every response that changed the metadata
    operation   operation on groups, and on topics that are not written, which errors name: "Read" for producers and consumers.
                It implies Describe, which metadata requests need
    """

    def __init__(self, config: ClientConfig, network: Network, scheduler: Scheduler, random: Random) -> None:
        self.config = config
        self.network = network
        self.scheduler = scheduler
        self.controller = -1
        self.version = 0
        self.operation = "Describe"
        self.racks: dict[int, str | None] = {}
        self._random = random
        self._max_age_ms: int = config["metadata.max.age.ms"]
        self._topics: dict[str, TopicInfo] = {}
        self._names: dict[bytes, str] = {}
        self._newest_epochs: dict[bytes, dict[int, int]] = {}
        """topic id -> partition -> newest leader epoch in any response (KIP-320)"""
        self._ids: dict[str, bytes] = {}
        self._retired: dict[bytes, int] = {}
        """Ids of deleted and recreated topics -> time (clock ms) until which responses with that id count as stale."""
        self._missing = MissingTopics()
        self._watched_ms: int | None = None
        self._coordinators: dict[tuple[int, str], int] = {}
        self._asking: dict[tuple[tuple[str, ...] | None, bool], Task[MetadataResponse]] = {}
        self._missed_since_ms: int | None = None
        """Time (clock ms) of the first metadata request since the last response or rebootstrap; None without one."""
        self._resolving_since_ms: int | None = None
        """Time (clock ms) of the first attempt to connect."""

    # -- repeating --

    def backoff_ms(self, failures: int) -> int:
        """Return the backoff in ms after a number of failures: doubling, within ±20 % (KIP-580)."""
        base = self.config["retry.backoff.ms"]
        ceiling = max(self.config["retry.backoff.max.ms"], base)
        milliseconds = min(base << min(max(failures, 1) - 1, 20), ceiling)
        return int(milliseconds * (80 + self._random.below(41)) // 100)

    async def retrying(
        self,
        about: str,
        attempt: Callable[[], Awaitable[T]],
        timeout_ms: int | None = None,
        deadline: int | None = None,
    ) -> T:
        """Call `attempt` until it succeeds or raises an error that is not retriable. Raises RequestTimedOut after
        `timeout_ms` (default.api.timeout.ms), for a call that began earlier at its `deadline` (clock ms)."""
        limit: int = self.config["default.api.timeout.ms"] if timeout_ms is None else timeout_ms
        clock = self.scheduler.clock
        if deadline is None:
            deadline = clock.now_ms() + limit
        failures = 0
        last: KafkaError | None = None
        while True:
            begun = self.scheduler.start(_to_coroutine(attempt()), about)
            try:
                ended = await self.scheduler.within(begun, max(deadline - clock.now_ms(), 0))
            finally:
                begun.cancel()
            if not ended:
                raise self._out_of_time(about, limit, last)
            try:
                return begun.result()
            except KafkaError as error:
                if not error.retriable:
                    raise
                last = error
                failures += 1
                if isinstance(error, StaleMetadata | ConnectionLost):
                    self.forget()
                left = deadline - clock.now_ms()
                if left <= 0:
                    raise self._out_of_time(about, limit, last) from None
            await self.scheduler.sleep(min(self.backoff_ms(failures), left))

    def _out_of_time(self, about: str, limit: int, last: KafkaError | None) -> KafkaError:
        """Return the error of a call that timed out; it names every unreachable address."""
        reasons = list(self.network.failures.values())
        unanswered = [] if self.network.open_links() else self.network.describe_pending()
        is_none_there = isinstance(last, ConnectionLost | None) and (self._all_fail() or (last is None and unanswered))
        if isinstance(last, BrokersUnreachable) or is_none_there:
            met = "; ".join(reasons or unanswered) or str(last)
            return BrokersUnreachable(f"{about}: no broker answered within {limit} ms: {met}")
        met = "; ".join(dict.fromkeys([*([str(last)] if last is not None else []), *reasons]))
        last_words = f"; last: {met}" if met else ""
        return RequestTimedOut(f"{about}: no success within {limit} ms{last_words}", last.code if last else -1)

    def _all_fail(self) -> bool:
        """Return True if every known address has failed since its last response."""
        failures = self.network.failures
        return bool(failures) and all(address in failures for address, _ in self._addresses())

    # -- asking --

    async def any_link(self) -> Link:
        """Return a connection to any broker. Raises BrokersUnreachable, with the error of every address, after
        socket.connection.setup.timeout.ms; BootstrapUnresolved, see `_resolution_left_ms`. Other errors, such as a failed
        authentication, are raised as they are."""
        open_now = self.network.open_links()
        if open_now:
            return open_now[0]
        await self.network.prepare()
        limit = self.config["socket.connection.setup.timeout.ms"]
        clock = self.scheduler.clock
        deadline = clock.now_ms() + limit
        while True:
            candidates = self._addresses()
            reasons: list[str] = []
            for number, (address, node) in enumerate(candidates):
                # One address that drops packets must leave time for the others.
                share = max((deadline - clock.now_ms()) // (len(candidates) - number), 1)
                share = min(share, self._resolution_left_ms())
                try:
                    return await self._reach(address, node, share)
                except RebootstrapRequired:
                    self.rebootstrap()
                    reasons.append(f"{address_text(*address)}: another broker than it was")
                except KafkaError as error:
                    if not isinstance(error, ConnectionLost | RequestTimedOut):
                        raise
                    reasons.append(str(error))
            if clock.now_ms() + self.config["reconnect.backoff.ms"] >= deadline:
                raise BrokersUnreachable(f"no broker answered within {limit} ms: {'; '.join(reasons)}")
            pause = max(min(self.config["reconnect.backoff.ms"], deadline - clock.now_ms()), 1)
            await self.scheduler.sleep(min(pause, self._resolution_left_ms()))

    def _resolution_left_ms(self) -> int:
        """Return the time left until the name of a bootstrap server must have an address (KIP-909); a long time if one had,
        or without a limit. Raises BootstrapUnresolved when it is over, since the client can not recover then."""
        limit: int = self.config["bootstrap.resolve.timeout.ms"]
        if not limit or self.network.has_resolved:
            return 2**62
        now = self.scheduler.clock.now_ms()
        if self._resolving_since_ms is None:
            self._resolving_since_ms = now
        left = self._resolving_since_ms + limit - now
        if left <= 0:
            reasons = "; ".join(self.network.failures.values())
            raise BootstrapUnresolved(
                f"Failed to resolve bootstrap servers after {limit}ms. Please check your bootstrap.servers "
                f"configuration and DNS settings{f': {reasons}' if reasons else '.'}"
            )
        return left

    async def _reach(self, address: Address, node: int, timeout_ms: int) -> Link:
        attempt = self.scheduler.start(self.network.ready_at(address, "", node), "connect")
        if not await self.scheduler.within(attempt, timeout_ms):
            attempt.cancel()
            self.network.give_up(address)
            met = self.network.failures.get(address, f"{address_text(*address)}: connection timed out")
            raise ConnectionLost(met)
        return attempt.result()

    def _addresses(self) -> list[tuple[Address, int]]:
        """Return the addresses to ask: the brokers of the metadata in random order, then the bootstrap servers (but with
        metadata.recovery.strategy=none only if no broker is known)."""
        known = [(address, node) for node, address in self.network.brokers.items()]
        for last in range(len(known) - 1, 0, -1):
            other = self._random.below(last + 1)
            known[last], known[other] = known[other], known[last]
        if known and self.config["metadata.recovery.strategy"] == "none":
            return known
        named = {address for address, _ in known}
        return known + [(address, -1) for address in self.config.bootstrap_servers if address not in named]

    def rebootstrap(self) -> None:
        """Start again from the bootstrap addresses (KIP-899)."""
        self.network.brokers = {}
        self.network.cluster_id = None
        self._coordinators.clear()
        self.forget()

    async def ask(
        self, node: int, request: Request[R], *, newest: int = 32767, timeout_ms: int | None = None, purpose: str = ""
    ) -> R:
        """Send a request to a node (-1: any) in the newest common version; return the response."""

        async def attempt(link: Link) -> R:
            return await link.request(request, link.version(type(request), newest), timeout_ms=timeout_ms)

        if node < 0:
            return await self.anywhere(attempt)
        return await attempt(await self.network.ready(node, purpose))

    async def anywhere(self, attempt: Callable[[Link], Awaitable[T]]) -> T:
        """Run `attempt` with a connection to any broker. After _ANSWER_WITHIN_MS without a response another broker is
        tried as well, and so on; the first response counts, so that a frozen broker causes no long delay. Raises KafkaError."""
        link = await self.any_link()
        asked = {link.address}
        begun = [self.scheduler.start(_to_coroutine(attempt(link)), "request")]
        try:
            while True:
                await self.scheduler.within(begun[0], _ANSWER_WITHIN_MS, *begun[1:])
                ended = [task for task in begun if task.done]
                for task in ended:
                    if task.error is None or len(begun) == 1 or not _is_retriable(task.error):
                        return task.result()
                begun = [task for task in begun if not task.done] or begun[-1:]
                others = [(address, node) for address, node in self._addresses() if address not in asked]
                if others and not ended:
                    asked.add(others[0][0])
                    begun.append(self.scheduler.start(self._attempt_at(others[0], attempt), "request"))
        finally:
            for task in begun:
                task.cancel()

    async def _attempt_at(self, where: tuple[Address, int], attempt: Callable[[Link], Awaitable[T]]) -> T:
        return await attempt(await self.network.ready_at(where[0], "", where[1]))

    # -- topics --

    def forget(self, topic: str | None = None) -> None:
        """Mark the metadata of a topic, or of all topics, as stale."""
        if topic is None:
            self._topics.clear()
        else:
            self._topics.pop(topic, None)

    def known(self, topic: str) -> TopicInfo | None:
        """Return a topic from the cache; None if it is missing or stale."""
        info = self._topics.get(topic)
        if info is not None and self.scheduler.clock.now_ms() - info.fetched_ms < self._max_age_ms:
            return info
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic id; None if no metadata has contained it."""
        return self._names.get(topic_id)

    async def topic(
        self,
        name: str,
        *,
        create: bool = False,
        operation: str | None = None,
        timeout_ms: int | None = None,
        deadline: int | None = None,
    ) -> TopicInfo:
        """Return a topic from the cache, or request it. `create` lets the broker create it (auto.create.topics.enable).

        operation  what the topic is needed for, which errors name; by default "Write" with `create`, else that of the client

        Raises UnknownTopic at once, unless `create`: then after `timeout_ms` (max.block.ms), for a call that began
        earlier at its `deadline` (clock ms).
        """
        known = self.known(name)
        if known is not None:
            return known
        if not create:
            return await self.retrying(
                f"metadata of topic {name}", partial(self._one_topic, name, operation=operation), timeout_ms
            )
        limit = self.config["max.block.ms"] if timeout_ms is None else timeout_ms
        attempt = partial(self._one_topic, name, create=True, operation=operation or "Write")
        try:
            return await self.retrying(f"topic {name}", attempt, limit, deadline)
        except RequestTimedOut as error:
            if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise UnknownTopic(f"topic {name} does not exist and the broker does not create it", error.code) from None

    async def _one_topic(self, name: str, *, create: bool = False, operation: str | None = None) -> TopicInfo:
        answer = await self.fetch([name], create=create)
        for row in answer.topics:
            if row.name == name:
                if row.error_code == UNKNOWN_TOPIC_OR_PARTITION and not create:
                    raise UnknownTopic(f"topic {name} does not exist", row.error_code)
                if row.error_code != NONE:
                    raise topic_error(row.error_code, name, operation or self.operation)
                known = self._topics.get(name)
                if known is None:
                    raise StaleMetadata(
                        f"topic {name}: a broker answered with the id of the deleted topic of that name"
                    )
                return known
        raise StaleMetadata(f"topic {name} is missing from the metadata response")

    async def all_topics(self) -> list[TopicInfo]:
        """Request all topics of the cluster; return them by name."""
        await self.retrying("list topics", lambda: self.fetch(None))
        return sorted(self._topics.values())

    async def fetch(self, names: Iterable[str] | None, *, create: bool = False) -> MetadataResponse:
        """Request the metadata of topics by name, or of all (None)."""
        requested = None if names is None else tuple(sorted(set(names)))
        key = (requested, create)
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = self.scheduler.start(self._fetch(requested, create=create), "metadata")
            task.listen(lambda _: self._asking.pop(key, None))
        return await _wait_shared(task)

    async def _fetch(self, names: tuple[str, ...] | None, *, create: bool) -> MetadataResponse:
        limit = self.config["metadata.recovery.rebootstrap.trigger.ms"]
        now = self.scheduler.clock.now_ms()
        if self._missed_since_ms is None:
            self._missed_since_ms = now
        elif self.config["metadata.recovery.strategy"] == "rebootstrap" and now - self._missed_since_ms > limit:
            self.rebootstrap()
            self._missed_since_ms = now

        answer, version, address = await self.anywhere(lambda link: self._request(link, names, create=create))
        if answer.error_code == REBOOTSTRAP_REQUIRED:
            self.rebootstrap()
        if answer.error_code != NONE:
            raise error_for(answer.error_code, "metadata")
        other_ids = self._learn(answer, everything=names is None, has_epochs=version >= _OLDEST_WITH_EPOCHS)
        if other_ids:
            await self._confirm(other_ids, address)
        return answer

    async def _request(
        self, link: Link, names: tuple[str, ...] | None, *, create: bool
    ) -> tuple[MetadataResponse, int, Address]:
        """Send one metadata request; return the response, its version, and the address of the broker."""
        version = link.version(MetadataRequest)
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        if version == 0 and topics is None:
            topics = []  # all topics in version 0
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=create or version < 4)
        return await link.request(request, version), version, link.address

    async def _confirm(self, other_ids: dict[str, bytes], asked: Address) -> None:
        """Query a second broker for topics whose id has changed; adopt the ids that both brokers return."""
        names = tuple(sorted(other_ids))

        async def attempt(link: Link) -> tuple[MetadataResponse, int, Address]:
            return await self._request(link, names, create=False)

        answer, version, _ = await self._at_another(asked, attempt)
        if answer.error_code == NONE:
            self._learn(answer, everything=False, has_epochs=version >= _OLDEST_WITH_EPOCHS, confirmed=other_ids)

    async def _at_another(self, asked: Address, attempt: Callable[[Link], Awaitable[T]]) -> T:
        """Run `attempt` with a connection to another broker; to any when no other one answers. Raises KafkaError."""
        for node, address in list(self.network.brokers.items()):
            if address == asked:
                continue
            asking = self.scheduler.start(self._attempt_at((address, node), attempt), "request")
            try:
                if await self.scheduler.within(asking, _ANSWER_WITHIN_MS) and asking.error is None:
                    return asking.result()
            finally:
                asking.cancel()
        return await self.anywhere(attempt)

    def _learn(
        self,
        answer: MetadataResponse,
        *,
        everything: bool,
        has_epochs: bool,
        confirmed: Mapping[str, bytes] | None = None,
    ) -> dict[str, bytes]:
        """Merge a response into the cache. Return changed topic ids by name, which are not adopted yet.

        confirmed  changed ids of the previous response; those that this response repeats are adopted
        """
        other_ids: dict[str, bytes] = {}
        now = self.scheduler.clock.now_ms()
        self._missed_since_ms = None
        self.version += 1
        if answer.brokers:
            self.network.brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            self.racks = {broker.node_id: broker.rack for broker in answer.brokers}
        if answer.cluster_id is not None:
            self.network.cluster_id = answer.cluster_id
        self.controller = answer.controller_id
        if everything:
            self._topics.clear()
        for topic in answer.topics:
            if topic.name is None:
                continue
            if topic.error_code != NONE:
                self._topics.pop(topic.name, None)
                self._missing.add(topic.name, topic.error_code, self.operation, now)
                continue
            self._missing.discard(topic.name)
            if not self._is_current(topic.name, topic.topic_id, confirmed or {}):
                self._topics.pop(topic.name, None)
                other_ids[topic.name] = topic.topic_id
                continue
            leaders = {part.partition_index: part.leader_id for part in topic.partitions}
            epochs = {part.partition_index: part.leader_epoch if has_epochs else -1 for part in topic.partitions}
            self._leave_out_stale(topic.topic_id, leaders, epochs)
            replicas = {part.partition_index: tuple(part.replica_nodes) for part in topic.partitions}
            self._topics[topic.name] = TopicInfo(
                topic.name, topic.topic_id, topic.is_internal, leaders, now, epochs, replicas
            )
            if topic.topic_id != ZERO_UUID:
                self._names[topic.topic_id] = topic.name
        return other_ids

    def denial(self, names: Iterable[str]) -> KafkaError | None:
        """Return an error that names those topics which metadata responses since the last call denied."""
        return self._missing.denial(names, self.operation)

    def is_missing(self, name: str) -> bool:
        """Return whether the last response about a topic said that it does not exist."""
        return self._missing.has(name)

    def watch(self, names: Iterable[str], on_denied: Callable[[], None]) -> None:
        """Request the metadata of subscribed topics that are unknown, at most every few seconds; log missing ones. Brokers may
        create them (allow.auto.create.topics).

        on_denied  called if a response denies some of them; `denial` returns the error
        """
        now = self.scheduler.clock.now_ms()
        if self._watched_ms is not None and now - self._watched_ms < _WATCH_EVERY_MS:
            return
        self._watched_ms = now
        missing = [
            name for name in names if self.known(name) is None and not self._missing.was_denied_recently(name, now)
        ]
        if missing:
            self.scheduler.background(self._watch(missing, on_denied), "topics that are missing")

    async def _watch(self, names: list[str], on_denied: Callable[[], None]) -> None:
        with contextlib.suppress(KafkaError):  # calls that need the topic raise it themselves
            answer = await self.fetch(names, create=self.config["allow.auto.create.topics"])
            if any(row.error_code == TOPIC_AUTHORIZATION_FAILED for row in answer.topics):
                on_denied()

    def _is_current(self, name: str, topic_id: bytes, confirmed: Mapping[str, bytes]) -> bool:
        """Return True if a topic has this id now, as confirmed by two brokers or by the only one."""
        before = self._ids.get(name)
        if topic_id in (before, ZERO_UUID):
            return True
        if before is not None:
            now = self.scheduler.clock.now_ms()
            if now < self._retired.get(topic_id, now):
                return False
            if len(self.network.brokers) > 1 and confirmed.get(name) != topic_id:
                return False
            self._retired = {old: until for old, until in self._retired.items() if until > now}
            self._retired[before] = now + _RETIRED_MS
        self._ids[name] = topic_id
        return True

    def _leave_out_stale(self, topic_id: bytes, leaders: dict[int, int], epochs: dict[int, int]) -> None:
        """Set the leader of a partition to -1 if the answer of a broker that lags behind has an older leader epoch."""
        if topic_id == ZERO_UUID:
            return
        newest = self._newest_epochs.setdefault(topic_id, {})
        for index, epoch in epochs.items():
            if epoch < newest.get(index, -1):
                leaders[index] = -1
            else:
                newest[index] = epoch
        for index in newest.keys() - epochs.keys():
            leaders[index] = -1  # partitions are never taken away: they are new

    # -- leaders --

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic, in order. Raises UnknownTopic."""
        return [TopicPartition(topic, number) for number in sorted((await self.topic(topic)).leaders)]

    async def leader(self, partition: TopicPartition) -> int:
        """Return the leader node. Raises StaleMetadata while there is no leader, UnknownTopic for an unknown partition."""
        return self.leader_in(await self.topic(partition.topic), partition)

    def leader_in(self, info: TopicInfo, partition: TopicPartition) -> int:
        """Return the leader node of a partition according to `info`. Raises the errors of `leader`."""
        if partition.partition not in info.leaders:
            self.forget(partition.topic)
            raise UnknownTopic(f"topic {partition.topic} has no partition {partition.partition}")
        node = info.leaders[partition.partition]
        if node < 0:
            self.forget(partition.topic)
            raise StaleMetadata(f"{partition} has no leader")
        return node

    def racks_of(self, info: TopicInfo, partition: int) -> frozenset[str]:
        """Return the racks that have a replica of a partition; brokers without a rack are left out."""
        racks = (self.racks.get(node) for node in info.replicas.get(partition, ()))
        return frozenset(rack for rack in racks if rack)

    # -- coordinators --

    async def coordinator(self, kind: int, key: str) -> int:
        """Return the coordinator node of a group, transactional id or share partition. Raises KafkaError."""
        node = self._coordinators.get((kind, key))
        if node is not None and node in self.network.brokers:
            return node

        async def attempt(link: Link) -> tuple[FindCoordinatorResponse, int]:
            version = link.version(FindCoordinatorRequest)
            request = FindCoordinatorRequest(key_type=kind)
            if version >= 4:
                request.coordinator_keys = [key]
            else:
                request.key = key
            return await link.request(request, version), version

        answer, version = await self.anywhere(attempt)
        row = answer.coordinators[0] if version >= 4 else answer
        if row.error_code != NONE:
            about = f"the coordinator of {key}"
            raise error_for(row.error_code, about, row.error_message, self.key_permission(kind, key))
        self.network.brokers = {**self.network.brokers, row.node_id: (row.host, row.port)}
        self._coordinators[kind, key] = row.node_id
        return row.node_id

    def key_permission(self, kind: int, key: str) -> Permission:
        """Return the permission on a group (kind 0) or transactional id (1) that this client needs."""
        if kind == 0:
            return Permission(self.operation, "group", (key,))
        return Permission("Describe" if self.operation == "Describe" else "Write", "transactional-id", (key,))

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Forget a coordinator that is unavailable or was replaced."""
        self._coordinators.pop((kind, key), None)


def _is_retriable(error: BaseException) -> bool:
    return isinstance(error, KafkaError) and error.retriable


async def _to_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _wait_shared(task: Task[T]) -> T:
    """Wait for a task that has other waiters; cancelling one waiter does not cancel the task."""
    promise: Deferred[T] = Deferred(task.tasks)

    def settle(done: Deferred[T]) -> None:
        if done.error is not None:
            promise.fail(done.error)
        else:
            promise.complete(done.result())

    task.listen(settle)
    return await promise
