"""Scenarios of streams groups. Each plays one, and leaves its transcript in `play.lines`."""

import time
from collections.abc import Callable
from typing import Any, Final

from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.members import wait_for

from .play import Play, info, subtopology

Scenario = Callable[[Wire, TopicFactory], Play]
SCENARIOS: Final[dict[str, Scenario]] = {}


def scenario(play: Scenario) -> Scenario:
    SCENARIOS[play.__name__] = play
    return play


def of_lines(wire: Wire, make_topic: TopicFactory, partitions: int = 4, **configs: str) -> Play:
    """A group whose only subtopology reads the topic "lines"."""
    play = Play(wire, make_topic, **configs)
    play.topology = [subtopology(sources=[play.topic("lines", partitions)])]
    return play


def grow(wire: Wire, topic: str, count: int) -> None:
    """Give a topic more partitions."""
    row = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    wire.send(CreatePartitionsRequest(topics=[row], timeout_ms=10_000), 3)


def has(status: int) -> Callable[[Any], bool]:
    return lambda answer: any(row.status_code == status for row in answer.status)


def lacks(status: int) -> Callable[[Any], bool]:
    return lambda answer: not has(status)(answer)


@scenario
def initial_delay(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic, partitions=2, streams_initial_rebalance_delay_ms="600")
    play.enter("A")
    play.beat("A", owns={})
    play.state()
    play.await_log()
    play.state()
    play.beat("A", owns={})
    play.beat("A", owns={"0": [0, 1]})
    play.quit("A")
    play.state()
    play.enter("A")  # the delay runs again, at the epoch of the empty group
    play.quit("A")
    return play


@scenario
def tasks_change_hands(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic)
    play.enter("A")
    play.enter("B")
    play.state()
    play.beat("A", owns={"0": [0, 1, 2, 3]})
    play.beat("B")
    play.beat("A")
    play.beat("A", owns={"0": [0, 1]})
    play.beat("B")
    play.state()
    play.beat("A", epoch=2, owns={"0": [0, 1]})
    play.beat("A", epoch=2, owns={"0": [0, 1, 2]})
    play.beat("A", epoch=2)
    play.beat("A", epoch=9, owns={"0": [0, 1]})
    play.enter("A")
    play.enter("C")
    play.beat("A", owns={"0": [0, 1]})
    play.beat("B", owns={"0": [2, 3]})
    play.beat("B", owns={"0": [2]})
    play.beat("C")
    play.quit("C")
    play.beat("B")  # gets 3 back: the quota leaves no choice
    play.beat("A")
    play.beat("C")
    play.quit("B")
    play.beat("A")
    play.quit("A")
    play.state()
    return play


@scenario
def a_target_that_moves_on(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic)
    (lines,) = play.topology[0].source_topics
    play.enter("A")
    play.enter("B")
    play.beat("A")
    play.quit("B")  # while A gives back
    play.beat("A", owns={"0": [0, 1, 2, 3]})
    play.beat("A", owns={"0": [0, 1]})
    play.beat("A", owns={"0": [0, 1]})
    play.beat("A", owns={"0": [0, 1, 2, 3]})
    play.enter("C")
    play.beat("A", owns={"0": [0, 1, 2, 3]})
    wire.send(
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=lines, count=5, assignments=None)], timeout_ms=10_000
        ),
        3,
    )
    play.settle("C", lambda answer: answer.member_epoch > 5)
    play.beat("A", owns={"0": [0, 1]})
    play.beat("C")
    play.state()
    return play


@scenario
def topics_come_and_go(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic)
    name = play.name("later")
    play.topology = [subtopology(sources=[name])]
    play.enter("A")
    play.state()
    make_topic(2, name=name)
    play.settle("A", lacks(1))
    play.beat("A", owns={"0": [0, 1]})
    play.state()
    wire.send(
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=3, assignments=None)], timeout_ms=10_000
        ),
        3,
    )
    play.settle("A", lambda answer: answer.active_tasks is not None)
    wire.send(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000), 6)
    play.settle("A", has(1))
    play.state()
    play.beat("A", owns={"0": [0, 1, 2]})
    play.beat("A", owns={})
    play.state()
    return play


@scenario
def missing_sources(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic)
    play.topology = [
        subtopology("0", [play.name("gone2"), play.name("gone")]),
        subtopology("1", [play.name("gone3"), play.name("gone4")]),
    ]
    play.enter("A")
    play.state()
    return play


@scenario
def static_members(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic)
    play.enter("A", instance_id="i")
    play.beat("A", owns={"0": [0, 1, 2, 3]}, instance_id="i")
    play.quit("A", -2, instance_id="i")
    play.state()
    play.enter("A9", instance_id="i", rebalance_timeout_ms=999, process_id="process-A")
    play.beat("A", epoch=2, instance_id="i")
    play.quit("A9", -2, instance_id="i")
    play.beat("A9", epoch=2, instance_id="i")
    play.enter("C", instance_id="i", process_id="another")
    play.enter("D")
    play.quit("C", -1, instance_id="i")
    play.beat("D")
    play.quit("D")
    return play


@scenario
def members_with_the_instance_of_another(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic)
    play.enter("A", instance_id="i")
    play.enter("B", instance_id="i")
    play.beat("B", epoch=2, instance_id="i")
    play.beat("B", epoch=2, instance_id="unknown")
    play.quit("B", -1, instance_id="i")
    play.quit("B", -2, instance_id="unknown")
    play.beat("A", instance_id="i")
    return play


@scenario
def descriptions_of_members(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic, partitions=1)
    play.enter("A", rack_id="r1", client_tags={"zone": "a", "cluster": "b"}, user_endpoint=700)
    play.beat("A", rack_id="r2")
    play.beat("A", client_tags={"zone": "c"})
    play.beat("A", process_id="moved")
    play.beat("A", rebalance_timeout_ms=20_000)
    play.beat("A", user_endpoint=701)
    play.beat("A", task_offsets={("0", 0): 5, ("1", 7): 6}, task_end_offsets={("0", 0): 9})
    group = play.state()
    for member in group.members:
        play.note(
            f"  {member.member_id} {member.instance_id} {member.rack_id} {member.client_id} {member.topology_epoch}"
            f" {member.process_id} {member.user_endpoint and member.user_endpoint.port}"
            f" {sorted((tag.key, tag.value) for tag in member.client_tags)}"
            f" {[(row.subtopology_id, row.partition, row.offset) for row in member.task_offsets]}"
            f" {[(row.subtopology_id, row.partition, row.offset) for row in member.task_end_offsets]}"
        )
    play.enter("A")
    play.enter("A", process_id="process-A")
    return play


@scenario
def shutdown_of_the_application(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic)
    play.enter("A")
    play.enter("B")
    play.beat("A", shutdown_application=True)
    play.beat("B")
    play.beat("A")
    play.quit("A")
    play.beat("B")
    play.quit("B")
    play.enter("A")
    play.enter("B")
    play.quit("B", shutdown_application=True)
    play.beat("A")
    return play


@scenario
def shutdown_requested_by_two_members(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic)
    play.enter("A")
    play.enter("B")
    play.beat("A", shutdown_application=True)
    play.beat("B", shutdown_application=True)
    play.quit("B", shutdown_application=True)
    play.beat("A")
    play.enter("B", shutdown_application=True)
    play.quit("A")
    play.beat("B", shutdown_application=True)
    return play


@scenario
def endpoints(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic)
    play.enter("A", user_endpoint=7001, endpoints=-1)
    play.beat("A")
    play.enter("B", user_endpoint=7002, endpoints=-1)
    play.beat("A", owns={"0": [0, 1, 2, 3]})
    play.beat("A", owns={"0": [0, 1]})
    play.beat("B")
    play.beat("A")
    play.enter("C", endpoints=-1)
    play.beat("A")
    play.quit("B")
    play.beat("A")
    play.beat("C")
    play.enter("A")
    play.beat("C")
    return play


@scenario
def standbys(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic, streams_num_standby_replicas="1")
    changelog = play.name("store")
    play.topology = [
        subtopology(sources=[play.topic("lines", 4)], changelogs=[info(changelog, cleanup_policy="compact")])
    ]
    play.enter("A")
    wait_for(lambda: play.partitions(changelog) == 4)
    play.settle("A", lacks(3))
    play.beat("A", owns={"0": [0, 1, 2, 3]})
    play.enter("B")
    play.beat("A", owns={"0": [0, 1, 2, 3]})
    play.beat("A", owns={"0": [0, 1]}, standby={"0": [2, 3]})
    play.beat("B", owns={}, standby={"0": [0, 1]})
    play.beat("B", owns={"0": [2, 3]}, standby={"0": [0, 1]})
    play.state()
    play.quit("A")
    play.beat("B", owns={"0": [2, 3]}, standby={"0": [0, 1]})
    play.beat("B", owns={"0": [0, 1, 2, 3]})
    reached = play.epochs["B"]
    play.configure(streams_num_standby_replicas="0")
    play.settle("B", lambda answer: answer.member_epoch > reached)
    play.state()
    return play


@scenario
def a_returned_task_comes_back_as_a_standby(wire: Wire, make_topic: TopicFactory) -> Play:
    """A task that a member has just given back is assigned to it in another role only one heartbeat later."""
    play = Play(wire, make_topic)
    changelog = play.name("store")
    play.topology = [
        subtopology(sources=[play.topic("lines", 2)], changelogs=[info(changelog, cleanup_policy="compact")])
    ]
    play.enter("A")
    wait_for(lambda: play.partitions(changelog) == 2)
    play.settle("A", lacks(3))
    play.beat("A", owns={"0": [0, 1]})
    play.enter("B")
    play.beat("A", owns={"0": [0, 1]})
    play.configure(streams_num_standby_replicas="1")
    reached = play.epochs["B"]
    play.settle("B", lambda answer: answer.member_epoch > reached)
    play.beat("A", owns={"0": [0]})
    play.beat("B", owns={})
    play.beat("A", owns={"0": [0]})
    play.beat("A", owns={"0": [0]}, standby={"0": [1]})
    play.beat("B", owns={"0": [1]}, standby={"0": [0]})
    play.state()
    return play


@scenario
def threads_of_one_process(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic, streams_num_standby_replicas="1")
    changelog = play.name("store")
    play.topology = [subtopology(sources=[play.topic("lines", 2)], changelogs=[info(changelog)])]
    play.enter("A", process_id="p")
    wait_for(lambda: play.partitions(changelog) == 2)
    play.settle("A", lacks(3))
    play.enter("B", process_id="p")
    play.beat("A", owns={"0": [0]})
    play.beat("B")
    play.enter("C", process_id="q")
    play.beat("A", owns={"0": [0]})
    play.beat("B", owns={"0": [1]})
    play.beat("C")
    play.state()
    return play


@scenario
def word_count(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic)
    through, store = play.name("through"), play.name("store")
    play.topology = [
        subtopology("0", sources=[play.topic("lines", 3)], sinks=[through]),
        subtopology("1", repartition=[info(through, retention_ms="-1")], changelogs=[info(store)]),
    ]
    play.enter("A")
    wait_for(lambda: play.partitions(through) == 3 and play.partitions(store) == 3)
    play.settle("A", lacks(3))
    play.state()
    group = play.state()
    for part in group.topology.subtopologies:
        topics = [*part.repartition_source_topics, *part.state_changelog_topics]
        play.note(f"  {part.subtopology_id} {[(row.name, row.partitions, row.replication_factor) for row in topics]}")
    play.beat("A", owns={"0": [0, 1, 2], "1": [0, 1, 2]})
    play.beat("A", owns={"0": [0, 1, 2], "5": [0]})
    play.beat("A", owns={"0": [0, 7]})
    play.enter("B", user_endpoint=7002, endpoints=-1)
    play.beat("A", owns={"0": [0, 1, 2], "1": [0, 1, 2]})
    play.beat("A", owns={"0": [0, 1], "1": [0]})
    play.beat("B")
    return play


def problem(play: Play) -> Play:
    play.enter("A")
    play.state()
    return play


@scenario
def copartitioned_sources_of_two_sizes(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic)
    lines, two = play.topic("lines", 4), play.topic("two", 2)
    play.topology = [subtopology(sources=[lines, two], copartition=[([0, 1], [])])]
    return problem(play)


@scenario
def an_existing_internal_topic_of_another_size(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic)
    through = play.topic("through", 9)
    play.topology = [
        subtopology("0", sources=[play.topic("lines", 4)], sinks=[through]),
        subtopology("1", repartition=[info(through)]),
    ]
    return problem(play)


@scenario
def a_fixed_repartition_topic_beside_a_source(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic)
    through = play.name("through")
    play.topology = [
        subtopology("0", sources=[play.topic("lines", 4)], sinks=[through]),
        subtopology("1", sources=[play.topic("two", 2)], repartition=[info(through, 5)], copartition=[([0], [0])]),
    ]
    return problem(play)


@scenario
def copartitioned_repartition_topics(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic)
    one, two, fixed = play.name("one"), play.name("two"), play.name("fixed")
    play.topology = [
        subtopology("0", sources=[play.topic("lines", 4)], sinks=[one]),
        subtopology("1", sources=[play.topic("pairs", 2)], sinks=[two, fixed]),
        subtopology("2", repartition=[info(one), info(two)], copartition=[([], [0, 1])]),
        subtopology("3", repartition=[info(fixed, 7)]),
    ]
    play.enter("A")
    wait_for(lambda: all(play.partitions(name) for name in (one, two, fixed)))
    play.note(f"  sizes {[play.partitions(name) for name in (one, two, fixed)]}")
    play.settle("A", lacks(3))
    return play


@scenario
def many_missing_internal_topics(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic)
    logs = [play.name(f"log{number}") for number in range(4)]
    play.topology = [subtopology(sources=[play.topic("lines", 1)], changelogs=[info(name) for name in logs])]
    answer = play.enter("A")
    text = answer.status[0].status_detail
    play.note(f"  names {sum(name in text for name in logs)}")
    del play.lines[0:3]  # the names are in the order of their random parts
    return play


@scenario
def a_topic_that_cannot_be_created(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic)
    play.topology = [subtopology(sources=[play.topic("lines", 1)], changelogs=[info(play.name("store"), factor=3)])]
    play.enter("A")
    play.settle("A", lambda answer: "failed" in answer.status[0].status_detail)
    play.state()
    return play


@scenario
def a_repartition_topic_with_too_many_partitions(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic)
    through = play.name("through")
    play.topology = [
        subtopology("0", sources=[play.topic("lines", 1)], sinks=[through]),
        subtopology("1", repartition=[info(through, 2**31 - 1)]),
    ]
    play.enter("A")
    play.settle("A", lambda answer: "failed" in answer.status[0].status_detail)
    play.state()
    return play


@scenario
def topologies_that_are_refused(wire: Wire, make_topic: TopicFactory) -> Play:
    play = Play(wire, make_topic)
    lines = play.topic("lines", 2)
    through = play.name("through")
    for topology in (
        [subtopology()],
        [subtopology("0", repartition=[info(through)], sinks=[through])],
        [subtopology("0", sources=[lines]), subtopology("1", repartition=[info(through)])],
        [subtopology(sources=[lines], changelogs=[info(play.name("store"), 3)])],
        [subtopology(sources=["__consumer_offsets", "__transaction_state"])],
        [subtopology(sources=["a b", "c d", lines])],
        [subtopology(sources=[lines]), subtopology(sources=[lines])],
        [subtopology(sources=[lines], copartition=[([1], [])])],
        [subtopology(sources=[lines], sinks=[through])],
    ):
        play.topology = topology
        play.enter("A")
    play.topology = [subtopology(sources=[lines])]
    play.topology_epoch = -1
    play.enter("A")
    return play


@scenario
def topologies_of_other_epochs(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic, partitions=2)
    first = play.topology
    play.topology_epoch = 3
    play.enter("A")
    play.topology_epoch = 2
    play.topology = [subtopology(sources=[play.topic("other", 1)])]
    play.enter("B")
    play.beat("A", owns={"0": [0]})
    play.beat("B")
    play.topology_epoch = 4
    play.topology = first
    play.enter("C")
    play.topology_epoch = 3
    play.topology = [subtopology(sources=[play.topic("third", 1)])]
    play.enter("C")
    play.quit("A")
    play.quit("B")
    play.enter("C")
    play.state()
    return play


@scenario
def sessions_end(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic)
    play.enter("A", rebalance_timeout_ms=800)
    play.enter("B")
    play.beat("A", owns={"0": [0, 1, 2, 3]})
    for _ in range(3):
        time.sleep(0.1)
        play.beat("A")
    play.await_log()
    play.beat("A")
    play.beat("B")
    return play


@scenario
def other_types_of_groups(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic)
    play.beat("A", epoch=1)
    play.quit("A")
    play.state()
    play.enter("A")
    play.beat("X", epoch=1)
    play.quit("X")
    deleted = wire.send(DeleteGroupsRequest(groups_names=[play.group_id]), 2)
    play.note(f"  delete {deleted.results[0].error_code}")
    play.quit("A")
    deleted = wire.send(DeleteGroupsRequest(groups_names=[play.group_id]), 2)
    play.note(f"  delete {deleted.results[0].error_code}")
    play.log()
    play.state()
    return play


@scenario
def assignor_configs(wire: Wire, make_topic: TopicFactory) -> Play:
    play = of_lines(wire, make_topic, partitions=1, streams_rack_aware_assignment_tags="rack,zone")
    play.enter("A")
    play.enter("A", client_tags={"rack": "1", "zone": "2"})
    play.configure(streams_rack_aware_assignment_tags="")
    play.settle("A", lambda answer: answer.member_epoch > 3)
    play.configure(streams_num_standby_replicas="1")
    play.settle("A", lambda answer: answer.member_epoch > 4)
    return play
