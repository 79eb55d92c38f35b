"""The assignor of tasks over random groups: complete, no task twice, balanced, sticky, copies in other processes."""

from math import ceil
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.groups.streams.assignor import Task, TaskMember, Workload, assign_sticky
from ottla.coordinators.groups.streams.tasks import TaskSet, group_tasks, pairs

SEEDS = st.integers(0, 2**32)


def some_work(random: Random) -> Workload:
    tasks = {str(number): random.randint(0, 9) for number in random.sample(range(12), random.randint(1, 4))}
    stateful = frozenset(name for name in tasks if random.random() < 0.6)
    return Workload(tasks, stateful, random.choice((0, 0, 1, 2)))


def some_members(random: Random, work: Workload) -> dict[str, TaskMember]:
    """Members of some processes; some of them had tasks before, of which some are no longer in the topology."""
    ids = [f"m{number}" for number in range(random.randint(1, 7))]
    processes = [f"p{random.randint(0, 4)}" for _ in ids]
    active: dict[str, set[Task]] = {member_id: set() for member_id in ids}
    standby: dict[str, set[Task]] = {member_id: set() for member_id in ids}
    for name, count in work.tasks.items():
        for number in range(count + random.choice((0, 0, 2))):
            if random.random() < 0.7:
                active[random.choice(ids)].add((name, number))
            if random.random() < 0.3:
                standby[random.choice(ids)].add((name, number))
    return {
        member_id: TaskMember(
            process,
            group_tasks(active[member_id]),
            group_tasks(standby[member_id] - active[member_id]),
            {(name, 0): random.randint(0, 9) for name in work.tasks if random.random() < 0.2},
        )
        for member_id, process in zip(ids, processes, strict=True)
    }


def everything(work: Workload) -> set[Task]:
    return {(name, number) for name, count in work.tasks.items() for number in range(count)}


def after(members: dict[str, TaskMember], dealt: dict[str, TaskSet]) -> dict[str, TaskMember]:
    return {
        member_id: TaskMember(member.process_id, dealt[member_id].active, dealt[member_id].standby, {})
        for member_id, member in members.items()
    }


@settings(max_examples=400, deadline=None)
@given(SEEDS)
def test_every_task_is_active_once_and_its_copies_are_elsewhere(seed: int) -> None:
    random = Random(seed)
    work = some_work(random)
    members = some_members(random, work)
    dealt = assign_sticky(members, work)
    assert dealt.keys() == members.keys()
    active = [task for tasks in dealt.values() for task in pairs(tasks.active)]
    assert sorted(active) == sorted(everything(work))
    processes = len({member.process_id for member in members.values()})
    for name, count in work.tasks.items():
        for task in ((name, number) for number in range(count)):
            homes = [
                members[member_id].process_id
                for member_id, tasks in dealt.items()
                for role in tasks
                if task in set(pairs(role))
            ]
            assert len(homes) == len(set(homes)), "twice in one process"
            copies = min(work.standby_replicas, processes - 1) if name in work.stateful else 0
            assert len(homes) == 1 + copies


@settings(max_examples=400, deadline=None)
@given(SEEDS)
def test_no_member_has_more_active_tasks_than_its_part_of_a_process(seed: int) -> None:
    """Processes of one member each get equal numbers of tasks, as far as they can be divided."""
    random = Random(seed)
    work = some_work(random)._replace(standby_replicas=0)
    members = {
        f"m{number}": member._replace(process_id=f"p{number}")
        for number, member in enumerate(some_members(random, work).values())
    }
    dealt = assign_sticky(members, work)
    most = ceil(len(everything(work)) / len(members))
    counts = [tasks.size for tasks in dealt.values()]
    assert max(counts) <= most
    assert min(counts) >= most - 1


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_the_same_group_again_changes_nothing(seed: int) -> None:
    random = Random(seed)
    work = some_work(random)._replace(standby_replicas=0)
    members = {
        f"m{number}": member._replace(process_id=f"p{number}")
        for number, member in enumerate(some_members(random, work).values())
    }
    dealt = assign_sticky(members, work)
    assert assign_sticky(after(members, dealt), work) == dealt


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_member_that_leaves_moves_only_its_own_tasks(seed: int) -> None:
    random = Random(seed)
    work = some_work(random)._replace(standby_replicas=0)
    members = {
        f"m{number}": member._replace(process_id=f"p{number}")
        for number, member in enumerate(some_members(random, work).values())
    }
    before = assign_sticky(members, work)
    stays = after(members, before)
    del stays[random.choice(sorted(stays))]
    dealt = assign_sticky(stays, work)
    for member_id in stays:
        assert set(pairs(before[member_id].active)) <= set(pairs(dealt[member_id].active))


def test_a_copy_becomes_active_where_it_is() -> None:
    work = Workload({"0": 2}, frozenset("0"), 1)
    members = {
        "A": TaskMember("a", group_tasks([("0", 0)]), group_tasks([("0", 1)]), {}),
        "C": TaskMember("c", {}, {}, {}),
    }
    assert set(pairs(assign_sticky(members, work)["A"].active)) == {("0", 0)}
    alone = {"A": members["A"], "C": TaskMember("c", {}, group_tasks([("0", 1)]), {})}
    assert set(pairs(assign_sticky(alone, work)["C"].active)) == {("0", 1)}


def test_equal_processes_get_tasks_in_the_order_of_joining() -> None:
    members = {name: TaskMember(f"process of {name}", {}, {}, {}) for name in ("C", "A", "B")}
    dealt = assign_sticky(members, Workload({"0": 4}, frozenset(), 0))
    assert {name: sorted(pairs(tasks.active)) for name, tasks in dealt.items()} == {
        "C": [("0", 0), ("0", 3)],
        "A": [("0", 1)],
        "B": [("0", 2)],
    }


def test_a_group_without_members_has_no_tasks() -> None:
    assert assign_sticky({}, Workload({"0": 3}, frozenset(), 0)) == {}
