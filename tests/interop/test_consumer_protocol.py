"""confluent-kafka (librdkafka) with group.protocol=consumer (KIP-848): two to five members, one killed, one that restarts as a
static member, regular expressions, and a group that changes its protocol while it lives."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from subprocess import PIPE, Popen

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from .conftest import PARTITIONS, RECORDS, Cluster
from .test_confluent_kafka import create, positions, produce

SECONDS = 60


def consumer(bootstrap: str, group: str, *topics: str, **config: object) -> Consumer:
    """A member that reads from the beginning and commits when it is told to. Its protocol is the new one."""
    settings: dict[str, object] = {
        "log_level": 0,
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
        "topic.metadata.refresh.interval.ms": 500,
    }
    made = Consumer(settings | {name.replace("_", "."): value for name, value in config.items()})
    made.subscribe(list(topics))
    return made


def shares(members: list[Consumer]) -> list[list[tuple[str, int]]]:
    return [sorted((part.topic, part.partition) for part in member.assignment()) for member in members]


def poll(members: list[Consumer], until: Callable[[list[list[tuple[str, int]]], list[int]], bool]) -> list[int]:
    """Poll all members in turn until `until(what each of them has, the numbers of the records so far)`."""
    numbers: list[int] = []
    deadline = time.monotonic() + SECONDS
    while not until(shares(members), numbers):
        assert time.monotonic() < deadline, (shares(members), len(numbers))
        for member in members:
            for message in member.consume(100, timeout=0.05):
                error, value = message.error(), message.value()
                assert error is None or error.retriable() or error.code() == KafkaError._ALL_BROKERS_DOWN, error
                if error is None and value is not None:
                    numbers.append(int(value[6:]))
    return numbers


def dealt(sizes: list[int], topic: str) -> Callable[[list[list[tuple[str, int]]], list[int]], bool]:
    """Return a condition: the members have so many partitions each, and together each of the topic's once."""

    def is_so(assignments: list[list[tuple[str, int]]], _: list[int]) -> bool:
        everything = sorted(part for share in assignments for part in share)
        whole = [(topic, number) for number in range(PARTITIONS)]
        return everything == whole and sorted(len(share) for share in assignments) == sorted(sizes)

    return is_so


def close(members: list[Consumer]) -> None:
    for member in members:
        member.close()


def test_members_come_and_go(cluster: Cluster, topic: str, group: str) -> None:
    create(cluster.bootstrap, topic)
    produce(cluster.bootstrap, topic, range(RECORDS))
    members = [consumer(cluster.bootstrap, group, topic)]
    assert sorted(poll(members, lambda _, numbers: len(numbers) >= RECORDS)) == list(range(RECORDS))
    members[0].commit(asynchronous=False)
    for sizes in ([2, 2], [1, 1, 2], [1, 1, 1, 1], [0, 1, 1, 1, 1]):
        members.append(consumer(cluster.bootstrap, group, topic))
        assert poll(members, dealt(sizes, topic)) == []
    for sizes in ([1, 1, 1, 1], [1, 1, 2], [2, 2], [4]):
        members.pop(0).close()
        assert poll(members, dealt(sizes, topic)) == []
    produce(cluster.bootstrap, topic, range(RECORDS, 2 * RECORDS))
    more = poll(members, lambda _, numbers: len(numbers) >= RECORDS)
    assert sorted(more) == list(range(RECORDS, 2 * RECORDS))
    members[0].commit(asynchronous=False)
    committed = members[0].committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=10)
    assert sum(part.offset for part in committed) == 2 * RECORDS
    close(members)


def test_a_group_outlives_its_broker(cluster: Cluster, topic: str, group: str) -> None:
    create(cluster.bootstrap, topic)
    produce(cluster.bootstrap, topic, range(RECORDS))
    members = [consumer(cluster.bootstrap, group, topic) for _ in range(2)]
    are_dealt = dealt([2, 2], topic)
    numbers = poll(members, lambda assignments, got: are_dealt(assignments, got) and positions(members) == RECORDS)
    assert set(numbers) == set(range(RECORDS))
    for member in members:
        member.commit(asynchronous=False)
    before = shares(members)
    cluster.restart()
    produce(cluster.bootstrap, topic, range(RECORDS, 2 * RECORDS))
    more = poll(members, lambda _, numbers: len(numbers) >= RECORDS)
    assert sorted(more) == list(range(RECORDS, 2 * RECORDS))
    assert shares(members) == before
    close(members)


def test_a_static_member_comes_back_to_what_it_had(cluster: Cluster, topic: str, group: str) -> None:
    create(cluster.bootstrap, topic)
    other = consumer(cluster.bootstrap, group, topic)
    static = consumer(cluster.bootstrap, group, topic, group_instance_id="i")
    poll([other, static], dealt([2, 2], topic))
    before = shares([other, static])
    static.close()  # for a while: it has an instance id
    again = consumer(cluster.bootstrap, group, topic, group_instance_id="i")
    poll([other, again], dealt([2, 2], topic))
    assert shares([other, again]) == before
    close([other, again])


def test_a_regular_expression(cluster: Cluster, topic: str, group: str) -> None:
    one, two = f"{topic}-one", f"{topic}-two"
    create(cluster.bootstrap, one)
    member = consumer(cluster.bootstrap, group, f"^{topic}-.*")
    poll([member], lambda assignments, _: len(assignments[0]) == PARTITIONS)
    create(cluster.bootstrap, two)  # the broker looks for new topics every ten seconds at most
    poll([member], lambda assignments, _: len(assignments[0]) == 2 * PARTITIONS)
    assert {name for name, _ in shares([member])[0]} == {one, two}
    member.close()


def _child(bootstrap: str, group: str, topic: str) -> None:
    """The program of the member that is going to be killed: it prints its number of partitions."""
    member = consumer(bootstrap, group, topic)
    while True:
        member.poll(0.1)
        print(json.dumps(len(member.assignment())), flush=True)  # noqa: T201


@pytest.mark.timeout(180)  # the session is 10 s with the broker of these tests, 45 s with another one
def test_a_member_that_is_killed_is_missed_after_its_session(cluster: Cluster, topic: str, group: str) -> None:
    create(cluster.bootstrap, topic)
    survivor = consumer(cluster.bootstrap, group, topic)
    code = (
        f"from tests.interop.test_consumer_protocol import _child; _child({cluster.bootstrap!r}, {group!r}, {topic!r})"
    )
    child = Popen([sys.executable, "-c", code], stdout=PIPE, text=True)
    assert child.stdout is not None
    try:
        poll([survivor], lambda assignments, _: len(assignments[0]) == 2)
        deadline = time.monotonic() + SECONDS
        while child.stdout.readline().strip() != "2":
            assert time.monotonic() < deadline
            survivor.poll(0)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    begun = time.monotonic()
    poll([survivor], dealt([4], topic))
    assert time.monotonic() - begun > 3
    survivor.close()


def test_a_group_goes_over_and_back_while_it_reads(cluster: Cluster, topic: str, group: str) -> None:
    """One member after the other is replaced by one of the other protocol; no record is missed, and none is read twice."""
    create(cluster.bootstrap, topic)
    classic: dict[str, object] = {"group_protocol": "classic", "heartbeat_interval_ms": 200}
    # librdkafka's sticky assignor now and then leaves data of its own in an assignment, and no broker takes such a group over.
    classic["partition_assignment_strategy"] = "range"
    members = [consumer(cluster.bootstrap, group, topic, **classic) for _ in range(2)]
    poll(members, dealt([2, 2], topic))
    position = 0
    for replacement in ({}, {}, classic, classic):
        members.append(consumer(cluster.bootstrap, group, topic, **replacement))
        poll(members, dealt([1, 1, 2], topic))
        members.pop(0).close()
        poll(members, dealt([2, 2], topic))
        produce(cluster.bootstrap, topic, range(position, position + RECORDS))
        numbers = poll(members, lambda _, numbers: len(numbers) >= RECORDS)
        assert sorted(numbers) == list(range(position, position + RECORDS))
        position += RECORDS
        for member in members:
            member.commit(asynchronous=False)
        assert positions(members) == position
    close(members)
