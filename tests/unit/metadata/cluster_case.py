"""Brokers without logs on a store in memory: registration, fencing and the controller, on virtual time.

Inputs of a transcript, one a line:

    brokers 1 2 3 [elr] [unclean]   nodes of the cluster, with a session timeout of 6 s
    topic t 1,2 2,3 [min=2]         create a topic with these replicas
    start N [clean|unclean|new]     start a process; `clean` follows a clean stop, `new` has no previous one
    start N empty                   its log directory was replaced by an empty one
    kill N / stop N / request-stop N
    earlier-release N               its release publishes no applied revisions
    cut N / heal N                  cut the broker off from the store
    revoke N [in MS]                end its lease, as a broker does that was refused by its address; later with the next inputs
    freeze / thaw                   the store has no quorum
    wait MS

Each revision of the store is written in the order in which it was made, and what a broker reports.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ottla.broker.cluster.controller import Controller, ControllerConfig
from ottla.broker.cluster.directories import Incarnation, OwnDirectories
from ottla.broker.cluster.membership import CannotJoin, Membership
from ottla.broker.cluster.node import load_or_create_cluster
from ottla.log.directory import LogDirectory
from ottla.metadata.changes.elections import ElectionRules
from ottla.metadata.image import EMPTY, NO_LEADER, BrokerImage, Image, Liveness, PartitionImage, TopicImage
from ottla.metadata.image.deltas import apply_entries
from ottla.metadata.metadata import Metadata
from ottla.metadata.store import Change, Entry, keys
from ottla.metadata.store.memory import MemoryMetadataStore, SharedMetadata
from ottla.tasks.scheduler import Scheduler
from tests.memory_store import MemoryStore

from .stores import VirtualTime

_SESSION_MS = 6000
_SETTLE_MS = 20


class _Chance:
    """Random numbers that need not be random here."""

    def bytes16(self) -> bytes:
        return bytes(16)

    def below(self, bound: int) -> int:
        return bound - 1


class _Shared(SharedMetadata):
    """Shared metadata that reports each revision."""

    def __init__(self, time: VirtualTime, case: "ClusterCase") -> None:
        super().__init__(time, time)
        self._case = case

    def _apply(self, changed: dict[str, Entry]) -> None:
        self._case.describe(self.revision + 1, changed.values())
        super()._apply(changed)


class Zeros:
    """Random numbers that are all zero."""

    def bytes16(self) -> bytes:
        return bytes(16)

    def below(self, bound: int) -> int:
        del bound
        return 0


class _Process:
    """One process of a broker; its timers end with it."""

    def __init__(self, case: "ClusterCase", node: int, previous: str, stopped_epoch: int) -> None:
        self.case = case
        self.node = node
        self.incarnation = f"{node}.{case.lives[node]}"
        self.is_ended = False
        self.membership: Membership | None = None
        self.controller: Controller | None = None
        self.tasks = Scheduler(self, self)
        self.store: MemoryMetadataStore = case.shared.connect(latency=lambda: 1, timers=self, tasks=self.tasks)
        self._previous = previous
        self._stopped_epoch = stopped_epoch
        self.tasks.background(self._start(), "start")

    def now_ms(self) -> int:
        return self.case.time.now_ms()

    def wall_ms(self) -> int:
        return self.case.time.wall_ms()

    def call_later(self, delay_ms: int, callback: Any) -> Any:
        return self.case.time.call_later(delay_ms, lambda: None if self.is_ended else callback())

    async def _start(self) -> None:
        case = self.case
        snapshot = await load_or_create_cluster(self.store, self.tasks, None, Zeros(), 1)
        metadata = self.metadata = Metadata(
            self.store,
            snapshot,
            random=_Chance(),
            tasks=self.tasks,
            default_partitions=lambda: 1,
            default_replicas=lambda: 1,
        )
        rules = lambda topic: ElectionRules(  # noqa: E731
            int(topic.configs.get("min.insync.replicas", 1)) if case.has_elr else 0, case.allows_unclean
        )
        directory = case.disks[self.node]
        registration = BrokerImage(self.node, f"b{self.node}", 9092, None, directories=(directory.id.hex(),))
        incarnation = Incarnation(self.incarnation, (self._previous,), self._stopped_epoch)
        failed = lambda reason: case.report(self.node, f"fails: {reason[:60]}")  # noqa: E731
        before = metadata.image.registered.get(self.node)
        own = OwnDirectories([directory], MemoryStore(), before, is_partial=False)
        membership = self.membership = Membership(
            registration,
            incarnation=incarnation,
            directories=own,
            store=self.store,
            metadata=metadata,
            tasks=self.tasks,
            session_timeout_ms=_SESSION_MS,
            failed=failed,
        )
        self.controller = Controller(
            config=ControllerConfig(300_000, _SESSION_MS),
            node_id=self.node,
            membership=membership,
            metadata=metadata,
            tasks=self.tasks,
            rules=rules,
            balances_leaders=lambda: case.balances_leaders,
        )
        metadata.follow(
            membership.applied_revisions.apply, membership.apply, self.controller.apply, membership.act_on_shutdown
        )
        try:
            await membership.join(lambda: None)
        except CannotJoin as cause:
            case.report(self.node, f"cannot join: {str(cause)[:60]}")
        else:
            case.report(self.node, "has joined")
            case.epochs[self.node] = membership.epoch
            self.controller.begin()

    def stop(self) -> None:
        """Leave the cluster, and end."""
        if self.controller is not None and self.membership is not None:
            self.controller.close()
            self.tasks.start(self.membership.leave(hands_over=True)).listen(lambda _: self.end())

    def end(self) -> None:
        """End the process without a word to the store."""
        self.is_ended = True
        self.store.close()


def _disk(node: int, number: int) -> LogDirectory:
    """Return an empty log directory of a broker; its id has the number of the disk."""
    directory = LogDirectory(MemoryStore(), Path("/data"), Zeros())
    directory.id = bytes(14) + bytes((node, number))
    return directory


class ClusterCase:
    """A cluster, and the lines of its transcript."""

    def __init__(self, line: str) -> None:
        self.has_elr = "elr" in line.split()
        self.allows_unclean = "unclean" in line.split()
        self.balances_leaders = False
        self.time = VirtualTime()
        self.begun_ms = self.time.now
        self.lines: list[str] = []
        self.image: Image = EMPTY
        nodes = [int(word) for word in line.split()[1:] if word.isdigit()]
        self.lives = dict.fromkeys(nodes, 0)
        self.epochs = dict.fromkeys(nodes, 0)
        self.disks = {node: _disk(node, 0) for node in nodes}
        self.processes: dict[int, _Process] = {}
        self.shared = _Shared(self.time, self)

    # -- inputs --

    def play(self, line: str) -> None:
        """Play one input, and what follows from it within some milliseconds."""
        command, *words = line.split()
        if command == "topic":
            self._create(words)
        elif command == "wait":
            self.time.advance(int(words[0]) - _SETTLE_MS)
        elif command in ("freeze", "thaw"):
            self.shared.freeze() if command == "freeze" else self.shared.thaw()
        elif command == "start":
            self._start(int(words[0]), *words[1:])
        elif command == "revoke" and len(words) > 1:
            node = int(words[0])
            self.time.call_later(int(words[2]), lambda: self._act("revoke", node))
            return
        else:
            self._act(command, int(words[0]))
        self.time.advance(_SETTLE_MS)

    def _start(self, node: int, how: str = "unclean") -> None:
        self.lives[node] += 1
        if how == "empty":
            self.disks[node] = _disk(node, self.lives[node])
        previous = "" if how in ("new", "empty") else f"{node}.{self.lives[node] - 1}"
        self.processes[node] = _Process(self, node, previous, self.epochs[node] if how == "clean" else 0)

    def _act(self, command: str, node: int) -> None:
        process = self.processes[node]
        sign = self.image.live.get(node)
        if command == "kill":
            process.end()
        elif command == "stop":
            process.stop()
        elif command == "cut":
            process.store.cut()
        elif command == "heal":
            process.store.heal()
        elif command == "revoke" and sign is not None:
            self.shared.revoke(sign.lease)
        elif command == "request-stop" and sign is not None:
            value = sign._replace(is_stopping=True).encoded()
            self.shared.change(Change(put={keys.live_key(node): value}, lease=sign.lease))
        elif command == "earlier-release" and sign is not None:
            # It publishes no applied revision: the value has no such field.
            value = sign._replace(applied=-1).encoded()
            self.shared.change(Change(put={keys.live_key(node): value}, lease=sign.lease))

    def _create(self, words: list[str]) -> None:
        name, *assignment = (word for word in words if "=" not in word)
        minima = [word.removeprefix("min=") for word in words if word.startswith("min=")]
        configs = {"min.insync.replicas": minima[0]} if minima else {}
        min_isr = int(minima[0]) if minima else 1
        partitions = tuple(PartitionImage.new(tuple(map(int, text.split(",")))) for text in assignment)
        topic_id = bytes(15) + bytes([len(self.image.topics) + 1])
        directories = {node: disk.id for node, disk in self.disks.items()}
        topic = TopicImage(
            name, topic_id, partitions, configs, min_isr=min_isr if self.has_elr else 0, directories=directories
        )
        self.shared.change(Change(put={keys.TOPICS + name: topic.encoded()}))

    # -- outputs --

    def _line(self, text: str) -> None:
        self.lines.append(f"  {self.time.now - self.begun_ms:6d} ms  {text}")

    def report(self, node: int, text: str) -> None:
        """Add what a broker reports."""
        self._line(f"broker {node} {text}")

    def describe(self, revision: int, entries: Iterable[Entry]) -> None:
        """Add what a revision changes."""
        delta = apply_entries(self.image, revision, list(entries))
        before, self.image = self.image, delta.image
        for entry in sorted(entries, key=lambda one: one.key):
            kind, _, name = entry.key[1:].partition("/")
            if kind == "brokers":
                self._line(f"registered {name} as {self.image.registered[int(name)].incarnation}")
            elif kind == "live":
                self._line(f"live {name}: {_sign(self.image.live.get(int(name)))}")
            elif kind == "controller":
                controller = self.image.controller_id
                self._line(f"controller: {controller if controller != NO_LEADER else 'none'}")
            elif kind == "topics":
                self._line(f"topic {name}: {json.loads(entry.value or b'{}').get('replicas')}")
            elif kind == "partitions":
                topic_id, index = keys.partition_of(entry.key)
                topic = self.image.topics_by_id[topic_id]
                self._line(f"{topic.name}-{index}: {_state(topic.partitions[index])}")
        assert before.revision < revision


def _sign(sign: Liveness | None) -> str:
    if sign is None:
        return "no"
    text = f"yes, {sign.incarnation}" + (" wants to stop" if sign.is_stopping else "")
    text += f", awaits revision {sign.awaited}" if sign.awaited else ""
    return text + (f", has applied {sign.applied}" if sign.applied > 0 else "")


def _nodes(nodes: tuple[int, ...]) -> str:
    return " ".join(map(str, nodes)) or "empty"


def _state(one: PartitionImage) -> str:
    return (
        (f"leader {one.leader}" if one.leader != NO_LEADER else "no leader")
        + f", epoch {one.leader_epoch}, isr {_nodes(one.isr)}"
        + (f", elr {_nodes(one.elr)}" if one.elr else "")
        + (f", last known leader {one.last_known_leader}" if one.last_known_leader != NO_LEADER else "")
        + (f", replaced {_nodes(one.replaced)}" if one.replaced else "")
        + (", recovering" if one.is_recovering else "")
    )
