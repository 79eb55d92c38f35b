"""The controller: one broker of the cluster, which reacts to brokers that come and go.

Any broker plans and writes what its clients request; the controller only elects leaders, removes fenced brokers from the ISRs,
and completes reassignments when the new replicas are in the ISR. It is the broker whose lease /controller hangs on. When it
becomes controller it looks at all partitions; afterwards an index leads from a broker to its partitions, so that a change costs
only the partitions that it affects.

Elections are written in changes of many partitions. A change compares every partition and topic it is planned on, the
controller's own key, and the registrations and signs of life of the new leaders: an old controller, or one with an old image,
writes nothing.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from ottla.broker.cluster.membership import Membership
from ottla.broker.config import BrokerConfig
from ottla.environment import Cancellable
from ottla.metadata import changes
from ottla.metadata.changes.elections import ElectionRules, elect_leader, elect_preferred, remove_from_isr, with_min_isr
from ottla.metadata.changes.reassignment import complete_reassignment, is_reassigned
from ottla.metadata.image import NO_LEADER, ControllerImage, Delta, Image, PartitionImage, TopicImage
from ottla.metadata.metadata import Metadata
from ottla.metadata.store import Change, keys
from ottla.tasks.deferred import Answer
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.cluster")
_COMPARISONS_A_CHANGE: Final = 120
"""Number of comparisons from which on a change is full: the last partition may add four, and etcd takes 128."""
_PARTITIONS_A_STEP: Final = 1_000
"""Number of partitions examined in one step of a few milliseconds."""
_RETRY_MS: Final = 200
Place = tuple[bytes, int]
"""Topic id and index of a partition."""


class PartitionIndex:
    """Partitions by their brokers: leader and ISR members; and partitions without a leader."""

    def __init__(self) -> None:
        self._by_node: dict[int, dict[Place, None]] = {}
        self._nodes_of: dict[Place, tuple[int, ...]] = {}

    def update(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        """Enter the current state of some partitions of a topic."""
        for index in indexes:
            partition = topic.partitions[index]
            self._enter((topic.id, index), (partition.leader, *partition.isr, *partition.elr))

    def remove(self, topic: TopicImage) -> None:
        """Remove the partitions of a deleted topic."""
        for index in range(len(topic.partitions)):
            self._enter((topic.id, index), ())

    def _enter(self, place: Place, nodes: tuple[int, ...]) -> None:
        before = self._nodes_of.pop(place, ())
        if before == nodes:
            self._nodes_of[place] = nodes
            return
        for node in before:
            self._by_node[node].pop(place, None)
        for node in nodes:
            self._by_node.setdefault(node, {})[place] = None
        if nodes:
            self._nodes_of[place] = nodes

    def of(self, node: int) -> list[Place]:
        """Return the partitions that a broker leads or is in the ISR or ELR of; NO_LEADER: those without a leader."""
        return list(self._by_node.get(node, ()))


class ControllerConfig(NamedTuple):
    """Times of the controller, in ms.

    balance_ms          leader.imbalance.check.interval.seconds
    session_timeout_ms  broker.session.timeout.ms: a broker that has left may be back in this time, for instance because it was
                        fenced quickly; only then records of its log are given up by an unclean election
    """

    balance_ms: int
    session_timeout_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> "ControllerConfig":
        """Return the times in the configs of a broker."""
        return cls(
            config.integer("leader.imbalance.check.interval.seconds") * 1000,
            config.integer("broker.session.timeout.ms"),
        )


class Controller:
    """The controller's part of this broker.

    rules             returns the settings for elections of a topic
    balances_leaders  returns auto.leader.rebalance.enable
    """

    def __init__(
        self,
        *,
        config: ControllerConfig,
        node_id: int,
        membership: Membership,
        metadata: Metadata,
        tasks: Scheduler,
        rules: Callable[[TopicImage], ElectionRules],
        balances_leaders: Callable[[], bool],
    ) -> None:
        self._config = config
        self._node_id = node_id
        self._membership = membership
        self._metadata = metadata
        self._tasks = tasks
        self._rules = rules
        self._balances_leaders = balances_leaders
        self._missing: dict[int, Cancellable] = {}
        """Brokers that have left within the session timeout, each with the timer of its end."""
        self._index: PartitionIndex | None = None
        """None while another broker is the controller."""
        self._epoch = 0
        self._urgent: dict[Place, None] = {}
        """Partitions to look at first: their leader had failed, or wanted to stop, when they were entered."""
        self._due: dict[Place, bool] = {}
        """Other partitions to look at; True if the preferred leader is to be elected."""
        self._is_writing = False
        self._is_candidate = False
        self._timer: Cancellable | None = None
        self._balance_timer: Cancellable | None = None
        self._is_closed = False

    @property
    def is_active(self) -> bool:
        """True while this broker is the controller."""
        return self._index is not None

    def begin(self) -> None:
        """Take part in the election of a controller, once this broker is live."""
        if self._may_stand() and not self._is_candidate:
            self._is_candidate = True
            self._tasks.background(self._run_for_controller(), "the election of a controller")

    def close(self) -> None:
        """Stop; the next controller continues."""
        self._is_closed = True
        self._index = None
        for timer in (self._timer, self._balance_timer, *self._missing.values()):
            if timer is not None:
                timer.cancel()

    # -- becoming controller --

    def apply(self, delta: Delta) -> Answer[None]:
        """Act on a change of the metadata."""
        if self._is_closed or not (delta.membership or self._index is not None):
            return None
        return self._tasks.run(self._act_on(delta), "the controller")

    async def _act_on(self, delta: Delta) -> None:
        if delta.membership:
            await self._follow(delta.image)
        if self._index is not None:
            self._queue_affected(delta, self._index)

    async def _follow(self, image: Image) -> None:
        """Become controller, or stop being it, as the image says; stand for election if there is no controller."""
        controller = image.controller
        is_own = controller is not None and (controller.node_id, controller.lease) == (
            self._node_id,
            self._membership.lease,
        )
        if controller is not None and is_own and self._epoch != controller.epoch:
            self._epoch = controller.epoch
            entered = 0
            _logger.info("node %d is the controller, epoch %d", self._node_id, controller.epoch)
            index = PartitionIndex()
            for topic in image.topics.values():
                for first in range(0, len(topic.partitions), _PARTITIONS_A_STEP):
                    numbers = range(first, min(first + _PARTITIONS_A_STEP, len(topic.partitions)))
                    index.update(topic, numbers)
                    self._enter((topic.id, number) for number in numbers)
                    entered += len(numbers)
                    if entered >= _PARTITIONS_A_STEP:
                        entered = 0
                        await self._tasks.sleep(0)
            if self._is_closed:
                return
            self._index = index
            for node in sorted(image.registered.keys() - image.brokers.keys()):
                self._await_return(node)
            self._write()
            self._plan_balancing()
        elif not is_own:
            self._index, self._epoch = None, 0
            self.begin()

    def _may_stand(self) -> bool:
        image = self._metadata.image
        is_live = self._membership.is_live and bool(self._membership.lease)
        return image.controller is None and is_live and not self._is_closed

    async def _run_for_controller(self) -> None:
        """Try to become controller until a broker is."""
        live = keys.live_key(self._node_id)
        try:
            while self._may_stand():
                lease = self._membership.lease
                change = Change(
                    {keys.CONTROLLER: 0},
                    {live: self._metadata.image.created_of(live)},
                    put={keys.CONTROLLER: ControllerImage(self._node_id, lease, 0).encoded()},
                    lease=lease,
                )
                outcome = await self._metadata.submit(change)
                if outcome.error is not None:
                    await self._tasks.sleep(_RETRY_MS)
        finally:
            self._is_candidate = False

    # -- elections --

    def _queue_affected(self, delta: Delta, index: PartitionIndex) -> None:
        """Look at the partitions that a delta affects."""
        image = delta.image
        for topic in delta.deleted:
            index.remove(topic)
        for topic in delta.changed:
            index.update(topic, range(len(topic.partitions)))
            self._queue((topic.id, number) for number in range(len(topic.partitions)))
        for name, numbers in delta.moved.items():
            index.update(image.topics[name], numbers)
            self._queue((image.topics[name].id, number) for number in numbers)
        if delta.settings and delta.before.features != image.features:
            for topic in image.topics.values():
                self._enter((topic.id, number) for number in range(len(topic.partitions)))
            self._write()
        if delta.membership:
            before = delta.before.brokers
            for node in sorted(before.keys() - image.brokers.keys()):
                _logger.info("broker %d is fenced: it leads or replicates %d partitions", node, len(index.of(node)))
                self._await_return(node)
                self._queue(index.of(node))
            for node in sorted(_stopping(image) - _stopping(delta.before)):
                _logger.info("broker %d wants to stop: it leads or replicates %d partitions", node, len(index.of(node)))
                self._queue(index.of(node))
            for node in sorted(image.brokers.keys() - before.keys()):
                self._cancel_return(node)
            if image.brokers.keys() - before.keys():
                self._queue(index.of(NO_LEADER))

    def _await_return(self, node: int) -> None:
        """Hold unclean elections back that would give up the log of a broker which may be back soon."""
        self._cancel_return(node)
        self._missing[node] = self._tasks.call_later(self._config.session_timeout_ms, partial(self._give_up, node))

    def _cancel_return(self, node: int) -> None:
        timer = self._missing.pop(node, None)
        if timer is not None:
            timer.cancel()

    def _give_up(self, node: int) -> None:
        del self._missing[node]
        self._queue_leaderless()

    def configs_applied(self) -> None:
        """Look at the partitions without a leader after configs of this broker were applied, which is later than the image has
        them: `rules` may allow unclean elections now.
        """
        self._queue_leaderless()

    def _queue_leaderless(self) -> None:
        if self._index is not None:
            self._queue(self._index.of(NO_LEADER))

    def _queue(self, places: Iterable[Place]) -> None:
        self._enter(places)
        self._write()

    def _enter(self, places: Iterable[Place]) -> None:
        """Enter partitions to look at. Those that lack a leader are served before those that lack a follower: a failed broker
        was a follower of several times as many partitions as it led.
        """
        topics, active = self._metadata.image.topics_by_id, self._metadata.image.active
        for topic_id, index in places:
            topic = topics.get(topic_id)
            if topic is not None and topic.partitions[index].leader not in active:
                self._urgent[topic_id, index] = None
            else:
                self._due.setdefault((topic_id, index), False)

    @property
    def _has_due(self) -> bool:
        return bool(self._urgent or self._due)

    def _next_partition(self) -> tuple[Place, bool]:
        """Take the next partition to look at; the second value is True if its preferred leader is to be elected."""
        if self._urgent:
            place = next(iter(self._urgent))
            del self._urgent[place]
            return place, self._due.pop(place, False)
        place = next(iter(self._due))
        return place, self._due.pop(place)

    def _write(self) -> None:
        """Write the next change of those that are needed."""
        while self._has_due and not self._is_writing and self._index is not None:
            planned: list[tuple[TopicImage, int, PartitionImage]] = []
            topics: set[bytes] = set()
            leaders: set[int] = set()
            examined = 0
            # A leader is compared by its registration and its sign of life.
            while self._has_due and len(planned) + len(topics) + 2 * len(leaders) < _COMPARISONS_A_CHANGE:
                examined += 1
                if examined > _PARTITIONS_A_STEP:
                    self._timer = self._tasks.call_later(0, self._write)
                    break
                place, balances = self._next_partition()
                topic = self._metadata.image.topics_by_id.get(place[0])
                state = None if topic is None else self._plan(topic, place[1], balances=balances)
                if topic is not None and state is not None:
                    planned.append((topic, place[1], state))
                    topics.add(topic.id)
                    leaders.add(state.leader)
            if planned:
                self._is_writing = True
                # Bound to the image it was planned on, now: while another task runs, `_submit` begins after further deliveries.
                self._tasks.background(self._submit(planned, self._change(planned)), "a change of partitions")
            elif examined > _PARTITIONS_A_STEP:
                return

    def _acceptable(self, node: int) -> bool:
        return self._metadata.image.is_active(node)

    def _plan(self, topic: TopicImage, index: int, *, balances: bool) -> PartitionImage | None:
        """Return the next state of a partition, None if it needs no change."""
        image, rules = self._metadata.image, self._rules(topic)
        before = topic.partitions[index]
        if rules.allows_unclean and any(node in self._missing for node in _with_records(before)):
            rules = rules._replace(allows_unclean=False)

        def acceptable(node: int) -> bool:
            return node not in before.offline and self._acceptable(node)

        state = before
        for node in before.isr:
            if not image.is_active(node):
                state = remove_from_isr(state, node, acceptable, rules) or state
        state = (elect_preferred(state, acceptable) if balances else elect_leader(state, acceptable, rules)) or state
        if set(state.isr) <= set(before.isr):
            # After an unclean election the reassignment is completed by the next change, as in Kafka.
            state = complete_reassignment(state, acceptable, rules) or state
        if state.leader != NO_LEADER and _has_other_level(state, rules):
            state = with_min_isr(state, rules.min_isr)
        return None if state == before else state._replace(epoch=before.epoch + 1)

    def _change(self, planned: list[tuple[TopicImage, int, PartitionImage]]) -> Change:
        """Return the change that writes these states, unless their partitions, topics or leaders have changed."""
        created = {keys.CONTROLLER: self._epoch}
        leaders = {state.leader for _, _, state in planned if state.leader != NO_LEADER}
        for key in map(keys.live_key, sorted(leaders)):
            created[key] = self._metadata.image.created_of(key)
        change = changes.partition_states(self._metadata.image, planned, created)
        registered = {key: self._metadata.image.revision_of(key) for key in map(keys.broker_key, sorted(leaders))}
        return change._replace(expect={**change.expect, **registered})

    async def _submit(self, planned: list[tuple[TopicImage, int, PartitionImage]], change: Change) -> None:
        outcome = await self._metadata.submit(change)
        self._is_writing = False
        if outcome.revision:
            self._log(planned)
            self._write()
            return
        self._enter((topic.id, index) for topic, index, _ in planned)
        if outcome.error is None:
            self._write()
        elif self._index is not None:
            _logger.warning("cannot write the next states of %d partitions: %s", len(planned), outcome.error)
            self._timer = self._tasks.call_later(_RETRY_MS, self._write)

    def _log(self, planned: list[tuple[TopicImage, int, PartitionImage]]) -> None:
        for topic, index, state in planned:
            if is_reassigned(topic.partitions[index]) and not is_reassigned(state):
                _logger.info("%s-%d has been reassigned to %s", topic.name, index, list(state.replicas))
        elected = sum(state.leader != topic.partitions[index].leader for topic, index, state in planned)
        without_leader = sum(state.leader == NO_LEADER for _, _, state in planned)
        _logger.info(
            "changed %d partitions: %d leaders elected, %d without a leader",
            len(planned),
            elected - without_leader,
            without_leader,
        )

    # -- preferred leaders --

    def _plan_balancing(self) -> None:
        if self._balance_timer is not None:
            self._balance_timer.cancel()
        self._balance_timer = self._tasks.call_later(self._config.balance_ms, self._balance)

    def _balance(self) -> None:
        """Elect the preferred leader of every partition that another replica leads."""
        if self._index is None:
            return
        if self._balances_leaders():
            for topic in self._metadata.image.topics.values():
                for index, partition in enumerate(topic.partitions):
                    first = partition.replicas[0]
                    if partition.leader != first and first in partition.isr and self._acceptable(first):
                        self._due[topic.id, index] = True
            self._write()
        self._plan_balancing()


def _has_other_level(partition: PartitionImage, rules: ElectionRules) -> bool:
    """Return True for a partition with one replica whose state has another level of the feature. Its leader has no followers,
    and writes no state; all values above 0 mean the same to it.
    """
    return len(partition.replicas) == 1 and bool(partition.min_isr) != bool(rules.min_isr)


def _with_records(partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas that may have records which no other one has."""
    kept = (node for node in partition.replicas if partition.replaced and node not in partition.replaced)
    return (*partition.isr, *partition.elr, partition.last_known_leader, *kept)


def _stopping(image: Image) -> frozenset[int]:
    """Return the live brokers that have requested a shutdown."""
    return frozenset(node for node, sign in image.live.items() if sign.is_stopping)
