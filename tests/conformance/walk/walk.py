"""Random walk of requests to two brokers, whose responses must be equal.

A walk has its own topics, groups and transactional ids. It ends at the first difference, because the states of the brokers may
differ from there on. The requests depend on the seed and on the identifiers that the brokers generated.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.authorization.messages import api_named
from tests.conformance.cluster.conftest import Cluster

from .apis import PROFILES
from .comparison import differences
from .draft import Draft, built
from .identities import CATEGORIES, Identities
from .placement import assignment, create_internal_topics, main_node, new_topic, settle, topics_of
from .rules import RULES
from .sharing import initialize
from .side import Side
from .values import Values

_LENGTH: Final = 80
_FIRST_WITH_BATCHES: Final = 3
_SPREADING: Final = frozenset(
    ("AlterPartitionReassignments", "CreatePartitions", "CreateTopics", "DeleteTopics", "ElectLeaders")
)
"""APIs whose changes Apache Kafka applies after the response."""
_PAUSES_S: Final = {"EndTxn": 0.03, "ShareAcknowledge": 0.02, "ShareFetch": 0.02, "ShareGroupHeartbeat": 0.1}
_PAUSES_IN_CLUSTERS_S: Final = {"EndTxn": 0.1, "JoinGroup": 0.05, "Produce": 0.05}
"""Until the followers have what is new."""
_UNTIL_FOLLOWERS_KNOW_S: Final = 0.7
"""Until followers know the high watermark: longer than replica.fetch.wait.max.ms."""
_AT_A_TIME: Final = 5
"""Walks while a broker is stopped."""
_MAIN_NODE_RATE: Final = 0.75


class Step(NamedTuple):
    """One request."""

    node_id: int
    api: str
    version: int
    draft: Draft

    def __str__(self) -> str:
        return f"{self.node_id}: {self.api} v{self.version} {self.draft}"


class Walk:
    """One walk; `prefix` begins all of its names."""

    def __init__(self, sides: Sequence[Side], seed: int, prefix: str, profile: str) -> None:
        self._sides = sides
        self._profile = profile
        self._weights = PROFILES[profile]
        self._prefix = prefix
        self._rng = random.Random(seed)
        self._identities = Identities()
        self._nodes = list(sides[0].addresses)
        self._values = Values(self._rng, prefix, self._identities, int(time.time() * 1000), self._nodes)
        self._values.takes_brokers = profile == "admin"
        offers = [side.offers() for side in sides]
        self._versions = {}
        for name in self._weights:
            key = api_named(name).key
            if all(key in versions for versions in offers):
                first, last = (choose(versions[key][at] for versions in offers) for at, choose in enumerate((max, min)))
                self._versions[name] = range(_FIRST_WITH_BATCHES if name == "Produce" else first, last + 1)

    def prepare(self) -> None:
        """Create the topics, and load the coordinators of the groups and transactional ids."""
        values = self._values
        factors = (len(self._nodes), min(2, len(self._nodes)), 1)
        topics = [
            new_topic(name, [assignment(self._rng, self._nodes)[:factor] for _ in range(2)])
            for name, factor in zip(values.topics, factors, strict=True)
        ]
        groups = [*values.groups, values.classic_group]
        coordinators = ((0, groups), (1, values.transactional_ids), (2, ["g:AAAAAAAAAAAAAAAAAAAAAQ:0"]))
        for side in self._sides:
            side.ask(CreateTopicsRequest(topics=topics, timeout_ms=5_000), 7)
            for kind, keys in coordinators:
                side.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=keys), 4)
        self._settle()
        main = main_node(self._nodes)
        self._compare(self._ask_all(Step(main, "Metadata", 12, Draft(MetadataRequest, self._all_topics()))))
        for transactional_id in (None, values.transactional_ids[0]):
            fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
            self._compare(self._ask_all(Step(main, "InitProducerId", 4, Draft(InitProducerIdRequest, fields))))
        if self._profile == "share":
            initialize(self._sides, main, values.groups, values.topics, self._identities)

    def go_on_without(self, node_id: int) -> None:
        """Send nothing to a broker, which has been stopped."""
        self._nodes.remove(node_id)
        self._settle()

    def steps(self) -> Iterator[tuple[Step, Sequence[Any], list[str]]]:
        """Yield each request, with the answers and the differences between them."""
        for _ in range(_LENGTH):
            step = self._drawn()
            if step.api == "Fetch" and step.node_id != main_node(self._nodes):
                time.sleep(_UNTIL_FOLLOWERS_KNOW_S)
            answers = [self._own(step.api, answer) for answer in self._ask_all(step)]
            yield step, answers, self._compare(answers)
            if step.api in ("ShareAcknowledge", "ShareFetch"):
                self._values.sharing.learn(step.draft.fields, answers[0])
            if step.api in _SPREADING:
                self._settle()
            time.sleep((_PAUSES_S if len(self._nodes) == 1 else _PAUSES_IN_CLUSTERS_S).get(step.api, 0))

    def shown(self, answer: Any, side: int) -> Any:
        """Return an answer in short: without what is empty, with aliases, and with the sizes of records."""
        if isinstance(answer, list):
            return [self.shown(value, side) for value in answer]
        if not isinstance(answer, dict):
            return answer
        values: dict[str, Any] = {}
        for name, value in answer.items():
            if name == "records":
                values[name] = f"{len(value or b'')} bytes"
            elif name in CATEGORIES and not isinstance(value, list):
                values[name] = self._identities.alias(name, value, side)
            elif value not in (0, None, "", []):
                values[name] = self.shown(value, side)
        return values

    def finish(self) -> None:
        """Delete the topics."""
        for side in self._sides:
            names = [DeleteTopicState(name=name) for name in topics_of(side, self._prefix, self._nodes[0])]
            side.ask(DeleteTopicsRequest(topics=names, timeout_ms=5_000), 6)

    def _drawn(self) -> Step:
        names = list(self._versions)
        while True:
            name = self._rng.choices(names, [self._weights[name] for name in names])[0]
            versions = self._versions[name]
            version = versions[-1] if self._rng.random() < 0.4 else self._rng.choice(versions)
            draft = self._values.request(api_named(name).request_class(), version)
            rule = RULES.get(name)
            if rule is None or rule(draft.fields, version, self._values) is not False:
                return Step(self._node(), name, version, draft)

    def _node(self) -> int:
        if len(self._nodes) == 1 or self._rng.random() < _MAIN_NODE_RATE:
            return main_node(self._nodes)
        return self._rng.choice(self._nodes)

    def _ask_all(self, step: Step) -> list[Any]:
        return [
            side.ask(built(step.draft, self._identities, at), step.version, step.node_id)
            for at, side in enumerate(self._sides)
        ]

    def _compare(self, answers: Sequence[Any]) -> list[str]:
        return list(differences(answers[0], answers[1], self._identities))

    def _own(self, api: str, answer: Any) -> Any:
        """Leave what is not of this walk out of the answers that list everything."""
        names = {
            "ListGroups": ("groups", "group_id"),
            "ListTransactions": ("transaction_states", "transactional_id"),
            "ListConfigResources": ("config_resources", "resource_name"),
        }
        if isinstance(answer, dict) and api in names:
            listing, name = names[api]
            answer[listing] = [row for row in answer[listing] if row[name].startswith(self._prefix)]
        if isinstance(answer, dict) and api == "DescribeLogDirs":
            for row in answer["results"]:
                row["topics"] = [topic for topic in row["topics"] if topic["name"].startswith(self._prefix)]
        if isinstance(answer, dict) and api == "DescribeClientQuotas":
            answer["entries"] = [
                row
                for row in answer["entries"] or ()
                if any((entity["entity_name"] or "").startswith(self._prefix) for entity in row["entity"])
            ]
        return answer

    def _all_topics(self) -> dict[str, Any]:
        topics = [MetadataRequestTopic(name=name) for name in self._values.topics]
        return {"topics": topics, "allow_auto_topic_creation": False}

    def _settle(self) -> None:
        settle(self._sides, self._prefix, self._nodes)
        time.sleep(0.1)  # Apache Kafka's partitions have leaders before these know it


def run(
    sides: Sequence[Side],
    seed: int,
    requests: int,
    report: Callable[[str], None],
    profile: str = "most",
    shown_steps: int = 5,
) -> list[str]:
    """Run walks with `seed`, `seed` + 1 and so on until `requests` were sent; return the differences.

    profile      set of APIs
    shown_steps  requests before a difference that are reported

    A walk with a difference is repeated, and counts only if it has one again: a busy broker may apply a change late.
    """
    if len(sides[0].addresses) > 1:
        for side in sides:
            create_internal_topics(side)
    unequal: list[str] = []
    sent = 0
    for number in range(seed, seed + requests):
        if sent >= requests:
            break
        count, difference = _walk(sides, number, profile, shown_steps)
        if difference is not None:
            _, difference = _walk(sides, number, profile, shown_steps)
        if difference is not None:
            report(difference)
            unequal.append(difference)
        sent += count
    return unequal


def run_without_a_broker(
    sides: Sequence[Side],
    clusters: Sequence[Cluster],
    seed: int,
    requests: int,
    report: Callable[[str], None],
    shown_steps: int = 5,
) -> list[str]:
    """Run walks like `run`, some at a time; one broker is stopped when their topics have been created."""
    for side in sides:
        create_internal_topics(side)
    stopped = max(sides[0].addresses)
    unequal: list[str] = []
    sent, following = 0, seed
    again: list[int] = []
    while sent < requests or again:
        seeds = [*again, *range(following, following + _AT_A_TIME - len(again))]
        following += _AT_A_TIME - len(again)
        walks = [(number, _prepared(sides, number, "most")) for number in seeds]
        for cluster, side in zip(clusters, sides, strict=True):
            cluster.stop(stopped)
            side.disconnect(stopped)
        repeated, again = again, []
        for number, walk in walks:
            walk.go_on_without(stopped)
            count, difference = _stepped(walk, number, sides, shown_steps)
            sent += count
            if difference is not None and number in repeated:
                report(difference)
                unequal.append(difference)
            elif difference is not None:
                again.append(number)
        for cluster in clusters:
            cluster.start(stopped)
        for _, walk in walks:
            walk.finish()
    return unequal


def _walk(sides: Sequence[Side], seed: int, profile: str, shown_steps: int) -> tuple[int, str | None]:
    """Run one walk; return the number of its requests, and a description of the difference at which it ended."""
    walk = _prepared(sides, seed, profile)
    count, description = _stepped(walk, seed, sides, shown_steps)
    walk.finish()
    return count, description


def _prepared(sides: Sequence[Side], seed: int, profile: str) -> Walk:
    walk = Walk(sides, seed, f"w{seed}-{random.getrandbits(24):06x}", profile)
    walk.prepare()
    return walk


def _stepped(walk: Walk, seed: int, sides: Sequence[Side], shown_steps: int) -> tuple[int, str | None]:
    history: list[str] = []
    for step, answers, unequal in walk.steps():
        history.append(f"  {step}")
        if unequal:
            answered = [f"{side.name}: {walk.shown(answers[at], at)}" for at, side in enumerate(sides)]
            description = [*history[-1 - shown_steps : -1], f"seed {seed}: {step}", unequal[0], *answered]
            return len(history), "\n".join(description)
    return len(history), None
