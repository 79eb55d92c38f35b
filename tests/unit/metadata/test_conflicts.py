"""Plans that another broker overtakes: nothing is lost, and what a request has made is not refused to it."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.requests.topic_creation import Creation, TopicCreation
from ottla.metadata import changes
from ottla.metadata.configs.alteration import BROKER
from ottla.metadata.features import initial
from ottla.metadata.image import BrokerImage, Image, Liveness
from ottla.metadata.metadata import Conflict, Metadata
from ottla.metadata.plans.topics import RequestedTopic, TopicBatch
from ottla.metadata.refusal import CHANGED, Refused
from ottla.metadata.store import Change, ChangeOutcome, keys
from ottla.metadata.store.memory import MemoryMetadataStore, SharedMetadata
from ottla.protocol.errors import INVALID_TOPIC_EXCEPTION, NONE, TOPIC_ALREADY_EXISTS
from ottla.tasks.deferred import Answer
from ottla.tasks.scheduler import Scheduler
from tests.unit.coordinators.world import CountingRandom
from tests.unit.metadata.followed import follow, listen

from .stores import VirtualTime


class Replicas:
    """Replicas that can be opened."""

    is_working = True

    def has_offline(self, topic: object) -> bool:
        del topic
        return False


class Quota:
    """Quota of mutations, which counts what it is charged."""

    def __init__(self) -> None:
        self.charged = 0

    def add(self, count: int) -> None:
        self.charged += count


class Cluster:
    """Two brokers on one store, whose answers and deliveries take some milliseconds."""

    def __init__(self, largest_change: int = 100) -> None:
        self.time = VirtualTime()
        self.shared = SharedMetadata(self.time, self.time)
        put = {
            keys.CLUSTER_ID: b"cluster",
            keys.METADATA_VERSION: str(keys.NEWEST_METADATA_VERSION).encode(),
            **keys.feature_levels(initial()),
        }
        for node in (1, 2):
            put[keys.broker_key(node)] = BrokerImage(node, f"b{node}", 9092, None, incarnation=f"{node}").encoded()
            put[keys.live_key(node)] = Liveness(f"{node}", 0, 0).encoded()
        self.shared.change(Change(put=put))
        self.largest_change = largest_change
        self.brokers = [self._broker(), self._broker()]

    def _broker(self) -> Metadata:
        tasks = Scheduler(self.time, self.time)
        store = self.shared.connect(latency=lambda: 3, tasks=tasks)
        store.largest_change = self.largest_change  # type: ignore[misc]
        return follow(
            Metadata(
                store,
                self.shared.snapshot(),
                random=CountingRandom(),
                tasks=tasks,
                default_partitions=lambda: 1,
                default_replicas=lambda: 1,
            )
        )

    def creation(self, broker: Metadata) -> TopicCreation:
        replicas: Any = Replicas()
        return TopicCreation(broker, replicas, lambda: None, broker.tasks)  # type: ignore[arg-type,return-value]

    def create(self, broker: Metadata, *names: str, quota: Any = None) -> list[Creation]:
        """Begin to create topics; the outcome is put into the list when it comes."""
        outcomes: list[Creation] = []
        requested = [RequestedTopic(name, 1, 1, {}, {}) for name in names]
        creation = self.creation(broker).create_requested(requested, "a client", quota)
        broker.tasks.start(creation).then(outcomes.append, lambda: pytest.fail("failed"))
        return outcomes


def codes(creation: Creation) -> dict[str, int]:
    return {name: result.error_code for name, result in creation.results.items()}


def test_a_plan_that_waits_does_not_undo_the_change_of_another_broker() -> None:
    """The broker that planned on an older image wrote over the configs that another one had set in between."""
    cluster = Cluster()
    one, two = cluster.brokers
    old = one.image
    stale = changes.configure(old, BROKER, "", {"b": "mine"})
    two.tasks.background(two.apply(lambda image: changes.configure(image, BROKER, "", {"c": "another"})), "change")
    cluster.time.advance(100)
    assert one.image.configs_of(BROKER, "") == {"c": "another"}
    commit = one.commit(stale)
    cluster.time.advance(100)
    assert isinstance(commit.error, Conflict)
    assert one.image.configs_of(BROKER, "") == {"c": "another"}


def test_a_conflict_is_answered_when_the_image_has_it() -> None:
    cluster = Cluster()
    one, two = cluster.brokers
    for broker, name in ((one, "a"), (two, "b")):

        def plan(image: Image, name: str = name) -> Change:
            return changes.configure(image, BROKER, "", {**image.configs_of(BROKER, ""), name: "1"})

        broker.tasks.background(broker.apply(plan), "change")
    cluster.time.advance(1000)
    assert one.image.configs_of(BROKER, "") == {"a": "1", "b": "1"}


def test_topics_that_a_request_has_created_exist_for_it_after_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """CreateTopics answered TOPIC_ALREADY_EXISTS for topics that it had made itself before the conflict."""
    cluster = Cluster(largest_change=2)
    one, two = cluster.brokers
    change, count = MemoryMetadataStore.change, 0

    def interleaved(store: MemoryMetadataStore, requested: Change) -> Answer[ChangeOutcome]:
        """Another broker creates t3 before the second part of the request is written."""
        nonlocal count
        count += 1
        if count == 2:
            topic = two.plans.plan(RequestedTopic("t3", 1, 1, {}, {}), TopicBatch())
            ((_, own),) = changes.create_topics(two.image, [topic], 100)
            cluster.shared.change(own)
        return change(store, requested)

    monkeypatch.setattr(MemoryMetadataStore, "change", interleaved)
    quota = Quota()
    outcomes = cluster.create(one, "t0", "t1", "t2", "t3", "t4", "t5", quota=quota)
    cluster.time.advance(1000)
    (creation,) = outcomes
    assert codes(creation) == {
        "t0": NONE,
        "t1": NONE,
        "t2": NONE,
        "t3": TOPIC_ALREADY_EXISTS,
        "t4": NONE,
        "t5": NONE,
    }
    assert sorted(one.image.topics) == ["t0", "t1", "t2", "t3", "t4", "t5"]
    assert quota.charged == 6, "each row is charged once, over all attempts"


def test_names_that_collide_are_not_both_created() -> None:
    """Both were planned on an image without the other: their keys do not conflict, their names do."""
    cluster = Cluster()
    one, _ = cluster.brokers
    first, second = cluster.create(one, "a.b"), cluster.create(one, "a_b")
    cluster.time.advance(1000)
    assert codes(first[0]) == {"a.b": NONE}
    assert codes(second[0]) == {"a_b": INVALID_TOPIC_EXCEPTION}


def test_a_long_request_delays_no_other_change() -> None:
    cluster = Cluster(largest_change=2)
    one, _ = cluster.brokers
    long = cluster.create(one, *[f"t{number}" for number in range(100)])
    short = cluster.create(one, "other")
    cluster.time.advance(40)
    assert [codes(creation) for creation in short] == [{"other": NONE}]
    assert long == []
    cluster.time.advance(10_000)
    assert set(codes(long[0]).values()) == {NONE}


@pytest.mark.parametrize("seed", range(20))
def test_two_brokers_that_change_the_same_keys_lose_nothing(seed: int) -> None:
    """Counters in configs are raised by both brokers, with random pauses between a plan and its commit; each topic is created
    by exactly one request.
    """
    cluster = Cluster(largest_change=3)
    dice = random.Random(seed)
    raised = {"x": 0, "y": 0}
    refused: list[Refused] = []

    async def raise_counter(broker: Metadata, name: str) -> None:
        for image in broker.attempts():
            texts = dict(image.configs_of(BROKER, ""))
            texts[name] = str(int(texts.get(name, "0")) + 1)
            await broker.tasks.sleep(dice.choice((0, 1, 20)))
            try:
                await broker.commit(changes.configure(image, BROKER, "", texts))
            except Conflict:
                continue
            raised[name] += 1
            return
        refused.append(Refused(NONE, None))

    creations: list[list[Creation]] = []
    for _ in range(12):
        broker = dice.choice(cluster.brokers)
        if dice.random() < 0.6:
            broker.tasks.background(raise_counter(broker, dice.choice("xy")), "counter")
        else:
            names = dice.sample([f"t{number}" for number in range(8)], 3)
            creations.append(cluster.create(broker, *names))
        cluster.time.advance(dice.choice((0, 1, 5)))
    cluster.time.advance(60_000)
    one, two = cluster.brokers
    assert refused == []
    assert {name: int(text) for name, text in one.image.configs_of(BROKER, "").items()} == {
        name: count for name, count in raised.items() if count
    }
    made: dict[str, int] = {}
    for (creation,) in creations:
        for name, result in creation.results.items():
            assert result.error_code in (NONE, TOPIC_ALREADY_EXISTS)
            made[name] = made.get(name, 0) + (result == CHANGED)
    assert set(made.values()) <= {1}
    assert sorted(one.image.topics) == sorted(made)
    assert one.image == two.image


def test_a_planted_bug_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that is compared with the image of its commit, in place of that of its plan, loses the other one."""
    original: Callable[..., Change] = changes.configure
    cluster = Cluster()
    one, two = cluster.brokers

    def rebased(image: Image, kind: int, name: str, texts: Any) -> Change:
        del image
        return original(one.image, kind, name, texts)

    old = one.image
    two.tasks.background(two.apply(lambda image: changes.configure(image, BROKER, "", {"c": "another"})), "change")
    cluster.time.advance(100)
    monkeypatch.setattr(changes, "configure", rebased)
    one.commit(changes.configure(old, BROKER, "", {"b": "mine"}))
    cluster.time.advance(100)
    assert one.image.configs_of(BROKER, "") == {"b": "mine"}


def test_a_listener_that_raises_is_reported_and_the_others_act() -> None:
    """Those behind it never heard of the change."""
    cluster = Cluster()
    one, _ = cluster.brokers
    reports: list[str] = []
    one.tasks.on_error = lambda name, error: reports.append(f"{name}: {error}")
    acted: list[str] = []

    def fail(_: object) -> None:
        raise ValueError("a bug")

    for listener in (lambda _: acted.append("first"), fail, lambda _: acted.append("last")):
        listen(one, listener)
    result = one.tasks.start(one.result_of(lambda image: changes.configure(image, BROKER, "", {"a": "1"})))
    cluster.time.advance(1000)
    assert (result.result(), acted, reports) == (CHANGED, ["first", "last"], ["a listener of the metadata: a bug"])


def test_a_listener_may_start_a_change() -> None:
    """It must not wait for it: the change before is answered when the listener has acted."""
    cluster = Cluster()
    one, two = cluster.brokers
    started: list[Any] = []

    def start_another(_: object) -> None:
        if not started:
            plan = one.result_of(lambda image: changes.configure(image, BROKER, "", {"b": "2"}))
            started.append(one.tasks.start(plan))

    listen(one, start_another)
    result = one.tasks.start(one.result_of(lambda image: changes.configure(image, BROKER, "", {"a": "1"})))
    cluster.time.advance(1000)
    assert (result.result(), started[0].result()) == (CHANGED, CHANGED)
    assert two.image.configs_of(BROKER, "") == {"b": "2"}
