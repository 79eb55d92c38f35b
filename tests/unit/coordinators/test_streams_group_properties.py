"""Whatever members of a streams group do in whatever order: no task is active twice, and the log knows everything."""

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.groups.state import Bounded, Groups, GroupSettings, StreamsSettings
from ottla.coordinators.groups.streams import heartbeat as streams_heartbeat
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.tasks import pairs
from ottla.protocol import errors
from ottla.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from ottla.tasks.deferred import Deferred

from .test_consumer_transcripts import image
from .world import World

SEEDS = st.integers(0, 2**32)
VERBS = ["beat"] * 10 + ["enter"] * 3 + ["quit", "away", "wait", "fail", "restart", "topics"]
REFUSED = (errors.UNKNOWN_MEMBER_ID, errors.FENCED_MEMBER_EPOCH, errors.FENCED_INSTANCE_ID, errors.GROUP_ID_NOT_FOUND)
ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")
TOPOLOGY = Topology(
    epoch=0,
    subtopologies=[
        Subtopology(subtopology_id="0", source_topics=["t"], repartition_sink_topics=["r"]),
        Subtopology(
            subtopology_id="1",
            repartition_source_topics=[TopicInfo(name="r")],
            state_changelog_topics=[TopicInfo(name="l")],
        ),
    ],
)


class Client:
    """One thread of an application: it processes what it is told, and ends a task before it reports that it has not got it."""

    def __init__(self, name: str, process: str, instance: str | None) -> None:
        self.name = name
        self.process = process
        self.instance = instance
        self.lives = 0
        self.abandon()

    def abandon(self) -> None:
        self.member_id = ""
        self.epoch = 0
        self.tasks: dict[str, dict[str, list[int]]] = {role: {} for role in ROLES}
        self.busy: set[tuple[str, int]] = set()
        """Active tasks that it processes, also those that it has yet to end."""

    def active(self) -> set[tuple[str, int]]:
        return {(name, number) for name, numbers in self.tasks["active_tasks"].items() for number in numbers}

    def report(self) -> dict[str, list[TaskIds]]:
        """Return the owned tasks as fields of a heartbeat."""
        self.busy = self.active()
        return {
            role: [TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in tasks.items()]
            for role, tasks in self.tasks.items()
        }


class Application:
    """Five threads in three processes, two of them static."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        streams = StreamsSettings(
            assignment_interval_ms=Bounded(self.random.choice((0, 0, 50)), 0, 50),
            initial_rebalance_delay_ms=self.random.choice((0, 0, 500)),
            standby_replicas=Bounded(self.random.choice((0, 1, 2)), 0, 2),
            max_size=5,
        )
        self.world = World(GroupSettings(initial_rebalance_delay_ms=0, streams=streams))
        self.revision = 0
        self.clients = [
            Client(f"c{number}", f"p{number % 3}", f"i{number}" if number < 2 else None) for number in range(5)
        ]
        self.sizes = {"t": 3, "r": 3, "l": 3}
        self.change_topics(self.sizes)

    def play(self, steps: int = 80) -> None:
        for _ in range(steps):
            self.step(self.random.choice(VERBS), self.random.choice(self.clients))
            check(self.world.groups)
            self.check_clients()

    def change_topics(self, sizes: dict[str, int]) -> None:
        self.revision += 1
        self.sizes = sizes
        self.world.groups.topics_changed(self.world.topology.advance(image(self.revision, sizes)))

    def step(self, verb: str, client: Client) -> None:
        world, random = self.world, self.random
        if verb == "wait":
            world.advance(world.clock.now + random.choice((10, 100, 1_000, 11_000, 46_000)))
        elif verb == "fail":
            world.log.fails_with = random.choice((errors.NONE, errors.NONE, errors.NOT_ENOUGH_REPLICAS))
        elif verb == "restart":
            if random.random() < 0.5:
                self.restart()
        elif verb == "topics":
            count = random.randint(1, 4)
            sizes = {"t": count, "r": count, "l": count if random.random() < 0.9 else 9}
            self.change_topics({name: size for name, size in sizes.items() if random.random() < 0.9})
        else:
            count = len(world.log.records)
            getattr(self, verb)(client)
            if world.log.fails_with != errors.NONE:
                assert len(world.log.records) == count

    def restart(self) -> None:
        """The log alone says the same as the memory did; so does a compacted one."""
        if self.random.random() < 0.5:
            self.world.log.compact(drop_tombstones=self.random.random() < 0.5)
        before = {group_id: snapshot(group) for group_id, group in self.world.groups.streams_groups.items()}
        self.world.start()
        after = {group_id: snapshot(group) for group_id, group in self.world.groups.streams_groups.items()}
        assert after == before

    # What clients do.

    def heartbeat(self, client: Client, epoch: int, **fields: Any) -> None:
        request = StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id=client.member_id,
            member_epoch=epoch,
            endpoint_information_epoch=0,
            instance_id=client.instance,
            **fields,
        )
        outcome = self.world.run(streams_heartbeat.heartbeat, request, 1)
        assert not isinstance(outcome, Deferred)
        answer = outcome.response
        if answer.error_code in REFUSED:
            client.abandon()
        if answer.error_code != errors.NONE:
            return
        client.epoch = max(answer.member_epoch, 0)
        if answer.active_tasks is not None:
            client.tasks = {
                role: {row.subtopology_id: list(row.partitions) for row in getattr(answer, role)} for role in ROLES
            }
            client.busy |= client.active()

    def enter(self, client: Client) -> None:
        if client.epoch:
            return
        client.abandon()
        client.lives += 1
        client.member_id = f"{client.name}-{client.lives}"
        nothing: dict[str, list[TaskIds]] = {role: [] for role in ROLES}
        self.heartbeat(client, 0, rebalance_timeout_ms=5_000, topology=TOPOLOGY, process_id=client.process, **nothing)

    def beat(self, client: Client) -> None:
        if not client.epoch:
            return
        self.heartbeat(client, client.epoch, **(client.report() if self.random.random() < 0.7 else {}))

    def quit(self, client: Client) -> None:
        if client.epoch:
            self.heartbeat(client, -1)
            client.abandon()

    def away(self, client: Client) -> None:
        if client.epoch and client.instance is not None:
            self.heartbeat(client, -2)
            client.abandon()

    def check_clients(self) -> None:
        """No two threads that are members process the same task."""
        group = self.world.groups.streams_groups.get("g")
        busy: dict[tuple[str, int], str] = {}
        for client in self.clients:
            if group is None or client.member_id not in group.members:
                continue
            for task in client.busy:
                assert busy.setdefault(task, client.member_id) == client.member_id


def snapshot(group: StreamsGroup) -> Any:
    """All that the log says about a group."""
    members = {
        member_id: (member.description, member.current, group.targets.get(member_id))
        for member_id, member in group.members.items()
    }
    processes = {process: sorted(ids) for process, ids in group.processes.items()}
    return (
        (group.epoch, group.target_epoch, group.target_timestamp, group.metadata_hash, group.validated_epoch),
        (group.configs, group.topology, members, group.static, processes, group.owners, sorted(group.targets)),
    )


def check(groups: Groups) -> None:
    """No task is active twice, nor copied beside itself; the group's books agree with its members'."""
    for group in groups.streams_groups.values():
        owners: dict[tuple[str, int], str] = {}
        homes: dict[tuple[str, str, int], str] = {}
        for member_id, member in group.members.items():
            current, process = member.current, member.description.process_id
            for active in (current.active, current.revoking_active):
                for task in pairs(active):
                    assert owners.setdefault(task, member_id) == member_id
            for tasks in (current.active, current.revoking_active, current.standby, current.revoking_standby):
                for task in pairs(tasks):
                    assert homes.setdefault((process, *task), member_id) == member_id
            if member.description.instance_id is not None:
                assert group.static[member.description.instance_id] == member_id
            assert member_id in group.processes[process]
        assert group.owners == owners
        assert group.targets.keys() <= group.members.keys()
        dealt = [task for target in group.targets.values() for task in pairs(target.active)]
        assert len(dealt) == len(set(dealt))
        assert group.epoch >= group.target_epoch


@settings(max_examples=250, deadline=None)
@given(SEEDS)
def test_no_task_is_active_twice(seed: int) -> None:
    application = Application(seed)
    application.play()
    application.world.log.fails_with = errors.NONE
    application.restart()


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_a_group_becomes_stable(seed: int) -> None:
    """After a while with heartbeats only, every task has a member, and every standby task a place."""
    application = Application(seed)
    application.play(50)
    world = application.world
    world.log.fails_with = errors.NONE
    application.change_topics({"t": 4, "r": 4, "l": 4})
    world.advance(world.clock.now + 60_000)
    for client in application.clients:
        client.abandon()
    for _ in range(10):
        world.advance(world.clock.now + 4_000)
        for client in application.clients:
            if not client.epoch:
                application.enter(client)
            else:
                application.heartbeat(client, client.epoch, **client.report())
    group = world.groups.streams_groups["g"]
    assert group.state == "Stable"
    assert len(group.members) == 5
    has = sorted(task for member in group.members.values() for task in pairs(member.current.active))
    assert has == [(name, number) for name in "01" for number in range(4)]
    copies = min(world.settings.streams.standby_replicas.default, 2)
    standbys = [task for member in group.members.values() for task in pairs(member.current.standby)]
    assert len(standbys) == 4 * copies
    for client in application.clients:
        current = group.members[client.member_id].current
        assert client.active() == set(pairs(current.active))
