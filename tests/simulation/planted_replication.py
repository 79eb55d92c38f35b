"""Bugs of replication that are planted into brokers: see `planted`."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ottla.broker.cluster import controller, offline_replicas
from ottla.broker.cluster.controlled_shutdown import ControlledShutdown
from ottla.broker.cluster.membership import Membership
from ottla.broker.coordination.coordinators import Coordination
from ottla.broker.requests import fetch_attempt
from ottla.broker.requests.delayed import DelayedAnswer
from ottla.broker.share_partitions import partitions
from ottla.environment import Timers
from ottla.log.log import Log
from ottla.metadata.changes.elections import ElectionRules, remove_from_isr, restrict_isr
from ottla.metadata.changes.reassignment import is_reassigned, target_of
from ottla.metadata.image import NO_LEADER, PartitionImage, TopicImage
from ottla.metadata.image.deltas import image_from
from ottla.metadata.store import Change, keys
from ottla.replication.follower.effects import LogEffects
from ottla.replication.follower.followed import Begin
from ottla.replication.leader.isr_changes import IsrChanges
from ottla.replication.leader.leadership import Leadership
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.tasks.deferred import Deferred

from .brokers import SimulatedBroker
from .planting import Patch, Planted, every, later, restart, serving, settings
from .run import Simulation

_BUSY_MS: Final = 5

# -- faults --


def cut_from_peers(simulation: Simulation, broker: SimulatedBroker, duration_ms: int) -> None:
    """Cut a broker off from the other brokers; its clients and the store reach it."""
    others = [other.name for other in simulation.brokers if other is not broker]
    for other in others:
        simulation.network.cut(broker.name, other)
        simulation.network.cut(other, broker.name)

    def heal() -> None:
        for other in others:
            simulation.network.heal(broker.name, other)
            simulation.network.heal(other, broker.name)

    later(simulation, duration_ms, heal)


def _fence(simulation: Simulation, broker: SimulatedBroker) -> None:
    """End the lease of a broker, as a peer does that was refused by its address: it becomes live again at once."""
    sign = image_from(broker.store.snapshot()).live.get(broker.node_id)
    if sign is not None:
        broker.store.shared.revoke(sign.lease)


def _isolate_and_kill(simulation: Simulation, chance: random.Random) -> None:
    """Kill a broker a moment after it was cut off from its followers."""
    broker = serving(simulation, chance)
    if broker is not None:
        cut_from_peers(simulation, broker, chance.randint(1500, 4000))
        later(simulation, chance.randint(200, 1200), broker.kill)
        later(simulation, chance.randint(2000, 5000), partial(broker.restart_after, 0))


def _move_away_and_back(simulation: Simulation, chance: random.Random) -> None:
    """Let the leaderships of a broker that is cut off from its followers move to another one, and back soon."""
    broker = serving(simulation, chance)
    if broker is None:
        return
    begun_ms = chance.randint(200, 500)
    cut_from_peers(simulation, broker, begun_ms + chance.randint(100, 400))
    later(simulation, begun_ms, partial(_fence, simulation, broker))
    back_ms = begun_ms + chance.randint(800, 1800)
    for number, other in enumerate(one for one in simulation.brokers if one is not broker):
        later(simulation, back_ms + 20 * number, partial(_fence, simulation, other))


def _lose_all_power(simulation: Simulation, chance: random.Random) -> None:
    """All brokers lose power, and start again in another order."""
    for broker in simulation.brokers:
        if broker.server is not None:
            broker.lose_power()
            later(simulation, chance.randint(200, 2500), partial(broker.restart_after, 0))


def kill_two(simulation: Simulation, chance: random.Random) -> None:
    """Kill two brokers, one after the other; the third one cannot reach the second one meanwhile."""
    first, second, third = chance.sample(simulation.brokers, 3)
    for one, other in ((second.name, third.name), (third.name, second.name)):
        simulation.network.cut(one, other)
        later(simulation, 3500, partial(simulation.network.heal, one, other))
    for broker, delay_ms in ((first, chance.randint(100, 300)), (second, chance.randint(1300, 2000))):
        later(simulation, delay_ms, broker.kill)
        later(simulation, delay_ms + 2500, partial(broker.restart_after, 0))


def _restart_unseen(simulation: Simulation, chance: random.Random) -> None:
    """Restart a broker while the controller is cut off from the store: its next image shows the broker live, as before."""
    controller_id = image_from(simulation.stores[0].snapshot()).controller_id
    others = [one for one in simulation.brokers if one.node_id != controller_id and one.is_serving]
    controller = next((one for one in simulation.brokers if one.node_id == controller_id), None)
    if controller is None or not others:
        return
    other = chance.choice(others)
    controller.store.cut(controller.name)
    later(simulation, 100, other.kill)
    later(simulation, chance.randint(150, 300), partial(other.restart_after, 0))
    later(simulation, 2500, partial(controller.store.heal, controller.name))


def _lose_two_in_turn(simulation: Simulation, chance: random.Random) -> None:
    """Kill the two brokers that are not the controller; their leases end within milliseconds of each other."""
    controller_id = image_from(simulation.stores[0].snapshot()).controller_id
    others = [broker for broker in simulation.brokers if broker.node_id != controller_id and broker.is_serving]
    delay_ms = 0
    for broker in chance.sample(others, len(others)):
        broker.kill()
        later(simulation, delay_ms, partial(_fence, simulation, broker))
        later(simulation, 1000, partial(broker.restart_after, 0))
        delay_ms += chance.randint(1, 2 * _BUSY_MS)


def _leave_while_proposed(simulation: Simulation, chance: random.Random) -> None:
    """Let a broker join the ISRs again, cut the others off from the store at about that time, and the broker from them."""
    broker = serving(simulation, chance)
    if broker is None:
        return
    _fence(simulation, broker)
    begun_ms = chance.randint(0, 60)
    for other in simulation.brokers:
        if other is not broker:
            later(simulation, begun_ms, partial(other.store.cut, other.name))
            later(simulation, begun_ms + 5000, partial(other.store.heal, other.name))
    later(simulation, begun_ms + chance.randint(1, 60), lambda: cut_from_peers(simulation, broker, 6000))


def _damage(simulation: Simulation, chance: random.Random) -> None:
    """Overwrite a record in the log of a replica, and read it there."""
    (replication,) = simulation.replication
    damage = replication.damage_log(chance)
    if damage is not None:
        later(simulation, chance.randint(0, 100), partial(replication.damaged.read, damage))
        later(simulation, 4000, partial(replication.damaged.heal, [damage]))


# -- bugs --


def _acknowledge_early(patch: Patch) -> None:
    """A write with acks=all is acknowledged after the leader's append."""
    original = Partition.has_acknowledged

    def has_acknowledged(self: Partition, acks: int, offset: int | None = None) -> bool:
        return original(self, 1 if acks == -1 else acks, offset)

    patch.setattr(Partition, "has_acknowledged", has_acknowledged)


def _keep_waiters(patch: Patch) -> None:
    """Waiters for a commit are kept when the leader epoch ends."""
    original = Partition.follow

    def follow(self: Partition, leader_id: int, leader_epoch: int) -> None:
        kept, self._waiters = self._waiters, {}
        original(self, leader_id, leader_epoch)
        self._waiters = {**kept, **self._waiters}

    patch.setattr(Partition, "follow", follow)


def _begin_at_log_end(patch: Patch) -> None:
    """A replica starts with its log end as the high watermark."""
    original = Log._load

    def load(self: Log, recovery_point: int, log_start_offset: int, high_watermark: int, **flags: bool) -> Any:
        del high_watermark
        return original(self, recovery_point, log_start_offset, (1 << 63) - 1, **flags)

    patch.setattr(Log, "_load", load)


def _truncate_to_high_watermark(patch: Patch) -> None:
    """A follower truncates to its high watermark, and its leader does not compare epochs."""
    change = LogEffects._change

    def changed(self: LogEffects, fetching: Any, effect: Any, partition: Partition) -> Any:
        if not isinstance(effect, Begin):
            return change(self, fetching, effect, partition)
        log = partition.log
        return self._cut(fetching, effect, partition, log.truncation(max(log.high_watermark, log.start_offset)))

    patch.setattr(LogEffects, "_change", changed)
    patch.setattr(fetch_attempt, "_divergence", lambda *_: None)
    patch.setattr(Log, "divergence", lambda *_: None)


def _add_any_member(patch: Patch) -> None:
    """A change of the ISR does not compare the registrations and signs of life of the new members."""
    original = IsrChanges._send

    async def send(self: IsrChanges, planned: list[Any], whole: Change) -> None:
        own = keys.live_key(self._node_id)
        expect = {key: revision for key, revision in whole.expect.items() if not key.startswith(keys.BROKERS)}
        created = {
            key: revision for key, revision in whole.created.items() if key == own or not key.startswith(keys.LIVE)
        }
        await original(self, planned, whole._replace(expect=expect, created=created))

    patch.setattr(IsrChanges, "_send", send)


def _forget_unknown_proposals(patch: Patch) -> None:
    """A proposal of unknown outcome is taken for refused."""
    patch.setattr(Leadership, "record_doubt", Leadership.record_refusal)


def _keep_epochs(patch: Patch) -> None:
    """A broker that starts again goes on in the leader epochs of its earlier process, and stays in the ISRs."""

    async def begin_no_epochs(_: Membership) -> None: ...

    patch.setattr(Membership, "_begin_epochs", begin_no_epochs)


def _fetch_before_flush(patch: Patch) -> None:
    """A follower fetches on before the flush that flush.messages demands."""

    def when_settled(self: Partition, callback: Callable[[], None]) -> None:
        self.advance()
        callback()

    patch.setattr(Partition, "when_settled", when_settled)


def _keep_moved_coordinators(patch: Patch) -> None:
    """A coordinator keeps the state of a partition that another broker leads for a time."""
    original = Coordination._lead

    def lead(self: Coordination, topic: TopicImage) -> None:
        runtime = self._runtimes[topic.name]
        partitions = list(topic.partitions)
        for index, placed in enumerate(partitions):
            if runtime.leads(index):
                epoch = self._epochs[topic.name, index]
                partitions[index] = placed._replace(leader=self._node_id, leader_epoch=epoch)
        original(self, topic._replace(partitions=tuple(partitions)))

    patch.setattr(Coordination, "_lead", lead)


def _complete_early(patch: Patch) -> None:
    """A reassignment is completed as soon as one of the new replicas is in the ISR."""

    def complete_reassignment(partition: PartitionImage, acceptable: Any, rules: Any) -> PartitionImage | None:
        target = target_of(partition)
        if not is_reassigned(partition) or not set(target) & set(partition.isr):
            return None
        state = restrict_isr(partition, target, acceptable, rules)
        return None if state.leader == NO_LEADER else state._replace(adding=(), removing=())

    patch.setattr(controller, "complete_reassignment", complete_reassignment)


def _remove_logs_early(patch: Patch) -> None:
    """A replica removes its log when a reassignment begins that will remove it."""
    original = Replicas._release

    def release(self: Replicas, topic: TopicImage, indexes: Any) -> Any:
        partitions = tuple(
            partition._replace(replicas=target_of(partition)) if is_reassigned(partition) else partition
            for partition in topic.partitions
        )
        return original(self, topic._replace(partitions=partitions), indexes)

    patch.setattr(Replicas, "_release", release)


def _keep_logs(patch: Patch) -> None:
    """A replica that was removed keeps its log."""

    def release(self: Replicas, topic: TopicImage, indexes: Any) -> Any:
        del self, topic, indexes
        yield from ()
        return 0

    patch.setattr(Replicas, "_release", release)


def _compare_with_a_later_image(patch: Patch) -> None:
    """The controller plans on one image, and compares its change with the revisions of a later one."""
    original = controller.Controller._submit

    async def submit(self: controller.Controller, planned: Any, change: Change) -> None:
        del change
        await self._tasks.sleep(_BUSY_MS)
        await original(self, planned, self._change(planned))

    patch.setattr(controller.Controller, "_submit", submit)


def _never_complete(patch: Patch) -> None:
    """The controller looks at the ISR, and not at reassignments."""
    patch.setattr(controller, "complete_reassignment", lambda *_: None)


def _stop_at_once(patch: Patch) -> None:
    """A broker that stops removes its sign of life at once."""
    patch.setattr(ControlledShutdown, "_state", lambda _: None)


def _stop_before_others_know(patch: Patch) -> None:
    """A broker that stops does not wait until the other brokers have applied the last move."""
    original = ControlledShutdown._state
    patch.setattr(ControlledShutdown, "_state", lambda self: original(self) if self._holdings else None)


def _pass_over_refused_positions(patch: Patch) -> None:
    """A follower gets no error for a position that its leader refused, if the leader knows the partition a moment later."""
    record = fetch_attempt._record_positions

    def pass_over(*arguments: Any) -> bool:
        record(*arguments)
        return True

    patch.setattr(fetch_attempt, "_record_positions", pass_over)


def _answer_followers_late(patch: Patch) -> None:
    """Event loops are busy: what they do after the current event comes some milliseconds later."""
    begin = DelayedAnswer.begin

    def begin_late(self: DelayedAnswer[Any], timers: Timers, wait_ms: int) -> Deferred[Any]:
        if self._is_deferred:
            look_again = self._look_again
            self._is_deferred = False
            timers.call_later(_BUSY_MS, look_again)
        return begin(self, timers, wait_ms)

    patch.setattr(DelayedAnswer, "begin", begin_late)


def _give_acknowledgements_up(patch: Patch) -> None:
    """A write of share state is not repeated when the share coordinator moves."""
    patch.setattr(partitions, "_WRITE_ATTEMPTS", 1)


def _cut_in_the_same_epoch(patch: Patch) -> None:
    """A damaged follower leaves the ISR and cuts its log in the leader epoch in which it has fetched."""
    report = Replicas.report_damage

    def report_damage(self: Replicas, partition: Partition, offset: int) -> None:
        report(self, partition, offset)
        partition.damaged_in = -1

    def remove_damaged(partition: PartitionImage, node: int, acceptable: Any) -> PartitionImage | None:
        if not any(map(acceptable, partition.isr)):
            return None
        return remove_from_isr(partition, node, acceptable, ElectionRules(partition.min_isr), has_records=False)

    patch.setattr(Replicas, "report_damage", report_damage)
    patch.setattr(offline_replicas, "remove_damaged", remove_damaged)


REPLICATION_BUGS: Final[dict[str, Planted]] = {
    "stopped at once": Planted(
        "stopped without partitions",
        1,
        settings("producer", replicas=3),
        _stop_at_once,
        every(restart(50, 300, clean=True), (3000, 5000)),
    ),
    "stopped before the others know": Planted(
        "moves known",
        1,
        settings("producer", replicas=3),
        _stop_before_others_know,
        every(restart(50, 300, clean=True), (3000, 5000), (20, 400)),
    ),
    "states compared with a later image": Planted(
        "leaders live",
        3,
        settings("producer", replicas=3),
        _compare_with_a_later_image,
        every(_lose_two_in_turn, (3000, 5000)),
    ),
    "acknowledgements lost at a stop": Planted(
        "stops unnoticed",
        1,
        replace(settings("producer", "share", replicas=3), only_stops=True),
        _give_acknowledgements_up,
        every(restart(300, 600, clean=True, kills=False), (2000, 4000)),
    ),
    "acknowledged before the high watermark": Planted(
        "nothing lost",
        4,
        settings("producer", replicas=3),
        _acknowledge_early,
        every(_isolate_and_kill, (5000, 7000)),
    ),
    "position refused without an error": Planted(
        "ISR complete",
        12,
        settings("producer", replicas=3),
        _pass_over_refused_positions,
        every(restart(50, 300), (1000, 2500), (20, 400)),
        _answer_followers_late,
    ),
    "waiter of an earlier epoch": Planted(
        "nothing lost",
        1,
        settings("producer", replicas=3),
        _keep_waiters,
        every(_move_away_and_back, (4000, 6000)),
    ),
    "high watermark from the log end": Planted(
        "high watermark final",
        1,
        settings("producer", replicas=3),
        _begin_at_log_end,
        every(_isolate_and_kill, (5000, 7000)),
    ),
    "truncation to the high watermark": Planted(
        "committed kept",
        2,
        settings("producer", replicas=3),
        _truncate_to_high_watermark,
        every(kill_two, (6000, 8000)),
    ),
    "member of the ISR without its registration": Planted(
        "ISR registered",
        5,
        settings("producer", replicas=3),
        _add_any_member,
        every(restart(50, 300), (1000, 2500), (20, 400)),
    ),
    "proposal of unknown outcome forgotten": Planted(
        "high watermark replicated",
        2,
        settings("producer", replicas=3, configs=(("replica.lag.time.max.ms", "1000"),)),
        _forget_unknown_proposals,
        every(_leave_while_proposed, (9000, 10_000)),
    ),
    "epoch of an earlier process": Planted(
        "one leader",
        1,
        settings("producer", replicas=3),
        _keep_epochs,
        every(_restart_unseen, (5000, 7000)),
    ),
    "fetch before the flush": Planted(
        "nothing lost",
        92,
        settings("producer", replicas=3, flushes=True),
        _fetch_before_flush,
        every(_lose_all_power, (6000, 8000)),
    ),
    "coordinator kept over a move": Planted(
        "coordinators current",
        1,
        settings("producer", "classic", replicas=3),
        _keep_moved_coordinators,
        every(_move_away_and_back, (4000, 6000)),
    ),
    "reassignment completed early": Planted(
        "reassigned in sync",
        1,
        settings("producer", "reassign", replicas=3),
        _complete_early,
        every(restart(50, 300), (3000, 5000)),
    ),
    "log removed before the replica": Planted(
        "nothing lost",
        1,
        settings("producer", "reassign", replicas=3),
        _remove_logs_early,
        every(restart(50, 300), (3000, 5000)),
    ),
    "log of a removed replica kept": Planted(
        "logs of replicas",
        1,
        settings("producer", "reassign", replicas=3),
        _keep_logs,
        every(restart(50, 300), (5000, 7000)),
    ),
    "damage cut in the same leader epoch": Planted(
        "high watermark replicated",
        1,
        settings("producer", replicas=3),
        _cut_in_the_same_epoch,
        every(_damage, (300, 900)),
    ),
    "reassignment that does not end": Planted(
        "reassignments end",
        1,
        settings("producer", "reassign", replicas=3),
        _never_complete,
        every(restart(50, 300), (5000, 7000)),
    ),
}
