"""Bugs that are planted into brokers, each with a workload and faults that show it, and a seed that found it.

`python -m tests.simulation.planted NAME` searches for the first seed whose run violates a check; `test_planted.py` repeats the
seeds that were found. A bug is put in by replacing a function for the time of a run: the broker itself has no switches.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ottla.broker.cluster.directories import OwnDirectories
from ottla.broker.cluster.peers import Peers
from ottla.broker.coordination import producer_ids, remote_markers
from ottla.broker.coordination.coordinators import Coordination
from ottla.client.admin.topics import NewTopic
from ottla.client.errors import KafkaError
from ottla.metadata import changes
from ottla.metadata import metadata as metadata_module
from ottla.metadata.image import NO_LEADER, Image, TopicImage
from ottla.metadata.image.deltas import image_from
from ottla.metadata.metadata import Metadata
from ottla.metadata.store import Change, ChangeOutcome, Entry, keys
from ottla.metadata.store.etcd.watch import Watch
from ottla.protocol.errors import UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.tasks.deferred import Answer, awaitable

from . import metadata as store_module
from .applications import AdminApplication
from .etcd_host import EtcdStoreHost
from .metadata import StoreHost
from .planted_disks import DISK_BUGS
from .planted_eligibility import ELIGIBILITY_BUGS
from .planted_replication import REPLICATION_BUGS
from .planted_stores import STORE_BUGS
from .planting import Patch, Planted, cut_from_store, every, later, restart, restart_client, settings, together
from .run import Simulation

_SMALL_BLOCK: Final = 4


class TopicChurner(AdminApplication):
    """Admin client that deletes topics soon after it has created them."""

    async def run(self) -> None:
        process, number = self.process, 0
        while not process.is_stopping:
            number += 1
            name = f"churn-{process.name.replace('.', '-')}-{number}"
            try:
                (await self._admin.create_topics([NewTopic(name, 6)], timeout=10)).check()
                await self._core.scheduler.sleep(process.chance.randint(100, 2000))
                (await self._admin.delete_topics([name], timeout=10)).check()
                process.step()
            except KafkaError as error:
                process.note_error(f"topic {name}", error)


def _with_churners(schedule: Callable[[Simulation], None]) -> Callable[[Simulation], None]:
    def prepare(simulation: Simulation) -> None:
        simulation.clients += [
            simulation._client(simulation.clusters[0], "churner", TopicChurner, number) for number in range(4)
        ]
        schedule(simulation)

    return prepare


# -- faults --


def _lose_leases_together(simulation: Simulation, chance: random.Random) -> None:
    """Let the leases of the controller and of a killed broker end at about the same time, then let the controller go on."""
    store: StoreHost = simulation.stores[0]
    controller_id = image_from(store.snapshot()).controller_id
    others = [broker for broker in simulation.brokers if broker.node_id != controller_id and broker.is_serving]
    controller = next((broker for broker in simulation.brokers if broker.node_id == controller_id), None)
    if controller is None or not others:
        return
    other = chance.choice(others)
    store.cut(controller.name)
    later(simulation, chance.randint(0, 1500), other.kill)
    later(simulation, chance.randint(4500, 7000), partial(store.heal, controller.name))
    later(simulation, 9000, partial(other.restart_after, 0))


def _hang_watch(simulation: Simulation, chance: random.Random) -> None:
    store = simulation.stores[0]
    if isinstance(store, EtcdStoreHost):
        number = chance.randrange(len(store.members))
        store.hang_watch(number)
        later(simulation, chance.randint(3000, 8000), partial(store.release_watch, number))


# -- bugs --


def _without_topics(patch: Patch) -> None:
    """An election or ISR change does not compare the topic."""
    original = changes.partition_states

    def partition_states(image: Image, states: Any, created: Any = None) -> Change:
        return original(image, states, created)._replace(created=dict(created or {}))

    patch.setattr(changes, "partition_states", partition_states)


def _submitting(patch: Patch, altered: Callable[[Change], Change]) -> None:
    """Alter the elections of the controller."""
    original = Metadata.submit

    async def submit(self: Metadata, change: Change) -> ChangeOutcome:
        return await original(self, altered(change) if keys.CONTROLLER in change.created else change)

    patch.setattr(Metadata, "submit", submit)


def _without_leaders(patch: Patch) -> None:
    """An election does not compare the registration and the sign of life of the new leader."""
    prefixes = (keys.BROKERS, keys.LIVE)

    def altered(change: Change) -> Change:
        expect = {key: revision for key, revision in change.expect.items() if not key.startswith(prefixes)}
        created = {key: revision for key, revision in change.created.items() if not key.startswith(prefixes)}
        return change._replace(expect=expect, created=created)

    _submitting(patch, altered)


def _without_controller(patch: Patch) -> None:
    """An election does not compare the key of the controller."""

    def altered(change: Change) -> Change:
        created = {key: revision for key, revision in change.created.items() if key != keys.CONTROLLER}
        return change._replace(created=created)

    _submitting(patch, altered)


def _small_blocks(patch: Patch) -> None:
    for module in (metadata_module, producer_ids):
        patch.setattr(module, "PRODUCER_ID_BLOCK", _SMALL_BLOCK)
    patch.setattr(producer_ids, "_RUNS_LOW", _SMALL_BLOCK // 2)


def _use_unknown_block(patch: Patch) -> None:
    """A block of producer ids whose reservation has an unknown outcome is used."""
    original = Metadata.producer_id_block

    async def producer_id_block(self: Metadata) -> int:
        first = self._next_producer_id
        block = await original(self)
        return first if block < 0 else block

    patch.setattr(Metadata, "producer_id_block", producer_id_block)


class _Unordered(store_module._LifeWatcher):
    """Watcher that gets every seventh delivery after the next one."""

    _count = 0
    _held: tuple[int, Sequence[Entry]] | None = None

    def changed(self, revision: int, entries: Sequence[Entry]) -> None:
        self._count += 1
        if self._count % 7 == 0:
            self._held = (revision, entries)
            return
        super().changed(revision, entries)
        if self._held is not None:
            held, self._held = self._held, None
            super().changed(*held)


def _swap_deliveries(patch: Patch) -> None:
    patch.setattr(store_module, "_LifeWatcher", _Unordered)


def _ignore_hung_watch(patch: Patch) -> None:
    patch.setattr(Watch, "_set_alarm", lambda _: None)


def _keep_old_lease(patch: Patch) -> None:
    """A broker that starts again does not recognise the sign of life of its own earlier process."""
    original = OwnDirectories.begin

    def begin(self: OwnDirectories, own: str) -> Any:
        return original(self, own)._replace(earlier=())

    patch.setattr(OwnDirectories, "begin", begin)


def _keep_coordinators(patch: Patch) -> None:
    """A coordinator is kept while no other broker leads its partition, also over leader epochs."""
    original = Coordination._lead

    def lead(self: Coordination, topic: TopicImage) -> None:
        runtime = self._runtimes[topic.name]
        partitions = list(topic.partitions)
        for index, placed in enumerate(partitions):
            if runtime.leads(index) and placed.leader in (self._node_id, NO_LEADER):
                epoch = self._epochs[topic.name, index]
                partitions[index] = placed._replace(leader=self._node_id, leader_epoch=epoch)
        original(self, topic._replace(partitions=tuple(partitions)))

    patch.setattr(Coordination, "_lead", lead)


def _answer_unknown_topic(patch: Patch) -> None:
    """Let every third request for markers meet a broker with an older image, which does not know the topic."""
    original = Peers.request
    count = 0

    def request(self: Peers, node_id: int, message: Any, *, purpose: str = "") -> Answer[Any]:
        nonlocal count
        if not isinstance(message, WriteTxnMarkersRequest):
            return original(self, node_id, message, purpose=purpose)
        count += 1
        if count % 3:
            return original(self, node_id, message, purpose=purpose)
        markers = [
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=UNKNOWN_TOPIC_OR_PARTITION
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in message.markers
        ]
        return WriteTxnMarkersResponse(markers=markers)

    patch.setattr(Peers, "request", request)


def _take_unknown_topic_for_done(patch: Patch) -> None:
    patch.setattr(remote_markers, "UNKNOWN_TOPIC_OR_PARTITION", None)


def _overwrite(patch: Patch) -> None:
    """A refused change is written again over the newer value, instead of being planned again."""

    original = Metadata._make

    async def make(self: Metadata, change: Change, is_valid: Callable[[Image], bool]) -> None:
        outcome = await awaitable(self._store.change(change), self.tasks)
        newer = {key: entry.revision for key, entry in outcome.conflicts.items() if key in change.expect}
        if newer:
            await original(self, change._replace(expect={**change.expect, **newer}), is_valid)
        elif outcome.revision:
            await self.when_applied(outcome.revision)

    patch.setattr(Metadata, "_make", make)


def _no_faults(_: Simulation) -> None: ...


PLANTED: Final[dict[str, Planted]] = {
    "election without the topic": Planted(
        "no orphans",
        2,
        settings("admin"),
        _without_topics,
        _with_churners(every(restart(100, 1000), (1000, 2500), (50, 700))),
    ),
    "election without the leader's registration": Planted(
        "leaders live",
        34,
        settings("producer"),
        _without_leaders,
        every(restart(50, 500, clean=True), (700, 2500), (20, 400)),
    ),
    "election by an old controller": Planted(
        "elected by the controller",
        3,
        settings("producer"),
        _without_controller,
        every(_lose_leases_together, (12_000, 13_000), (50, 600)),
    ),
    "producer ids of unknown outcome": Planted(
        "producer ids unique",
        1,
        settings("producer"),
        _use_unknown_block,
        every(together(restart_client, cut_from_store(2000, 3000)), (300, 1500)),
        _small_blocks,
    ),
    "deliveries out of order": Planted("images equal", 1, settings("admin", "config"), _swap_deliveries, _no_faults),
    "hung watch": Planted(
        "images equal",
        1,
        settings("config", store="etcd"),
        _ignore_hung_watch,
        every(_hang_watch, (4000, 9000)),
    ),
    "lease of the earlier process": Planted(
        "starts bounded", 12, settings("producer"), _keep_old_lease, every(restart(100, 500), (4000, 8000))
    ),
    "coordinator of an old epoch": Planted(
        "coordinators current",
        1,
        settings("producer", "classic"),
        _keep_coordinators,
        every(cut_from_store(7000, 9000), (10_000, 12_000)),
    ),
    "unknown topic taken for done": Planted(
        "transactions atomic",
        2,
        settings("transactions"),
        _take_unknown_topic_for_done,
        _no_faults,
        _answer_unknown_topic,
    ),
    "config over a newer one": Planted(
        "configs kept", 1, settings("config"), _overwrite, every(lambda *_: None, (1000, 1000), (20, 300))
    ),
    **REPLICATION_BUGS,
    **ELIGIBILITY_BUGS,
    **DISK_BUGS,
    **STORE_BUGS,
}


def main() -> int:
    """Search for the first seed that finds a bug."""
    parser = argparse.ArgumentParser(description="Search for seeds that find planted bugs.")
    parser.add_argument("names", nargs="*", help="planted bugs (default: all)")
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds to try")
    options = parser.parse_args()
    missing = 0
    for name in options.names or PLANTED:
        begun = time.process_time()
        planted = PLANTED[name]
        seed = planted.first_found(1, options.seeds)
        missing += seed is None
        seconds = time.process_time() - begun
        sys.stdout.write(
            f"{name}: {'not found' if seed is None else f'seed {seed}'} after {seconds:.1f} s of CPU time\n"
        )
        sys.stdout.flush()
    return missing


if __name__ == "__main__":
    sys.exit(main())
