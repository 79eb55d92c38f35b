"""A directory of a single broker that becomes that of several brokers, and of one again."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla import Admin, Consumer, NewPartitions, Producer, TopicPartition

from .brokers import BrokerProcesses, wait_until
from .conftest import command
from .records import read_all

Start = Callable[..., BrokerProcesses]


@pytest.fixture
def brokers_in() -> Iterator[Start]:
    begun: list[BrokerProcesses] = []

    def starter(data: Path, **arguments: int) -> BrokerProcesses:
        begun.append(BrokerProcesses(data, **arguments))
        return begun[-1]

    yield starter
    for brokers in begun:
        brokers.close()
        sys.stdout.write("\n".join(brokers.log))  # shown if the test fails


def test_a_single_broker_becomes_the_first_of_three_and_is_alone_again(tmp_path: Path, brokers_in: Start) -> None:
    """The records, groups and configs of a single broker are kept; so are they when the other brokers are removed for good."""
    data = tmp_path / "data"
    single = subprocess.Popen(
        command("--listen", "127.0.0.1:0", "--data-dir", str(data)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with single:
        assert single.stdout is not None
        servers = re.findall(r"127.0.0.1:\d+", single.stdout.readline().decode())[0]
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(600):
                producer.send("broker", str(number).encode(), partition=0)
        with Consumer(bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["broker"])
            assert len(consumer.consume(400, 20)) == 400
            consumer.commit()
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_partitions([NewPartitions("broker", 2)]).check()  # whose directory is called broker-1
        single.terminate()
    brokers = brokers_in(data)
    servers = brokers.bootstrap_servers
    assert f"{data} is {data}/broker-1 now" in "\n".join(brokers.log)
    with Consumer(bootstrap_servers=servers, group_id="readers") as consumer:
        consumer.subscribe(["broker"])
        assert [record.value for record in consumer.consume(200, 20)] == [str(n).encode() for n in range(400, 600)]
    with Admin(bootstrap_servers=servers) as admin:
        places = [TopicPartition("broker", 0), TopicPartition("broker", 1)]
        wait_until(lambda: len(admin.describe_cluster().nodes) == 3)
        admin.alter_partition_reassignments({place: [2, 3] for place in places}).check()
        wait_until(lambda: not admin.list_partition_reassignments())
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("broker", b"600", partition=0).result(20)
        # And back: everything moves to the first broker, the others are removed.
        names = ["broker", "__consumer_offsets"]
        everything = [
            TopicPartition(str(name), part.partition)
            for name, topic in admin.describe_topics(names).items()
            for part in topic.partitions
        ]
        admin.alter_partition_reassignments({place: [1] for place in everything}).check()
        wait_until(lambda: not admin.list_partition_reassignments())
    brokers.close()
    alone = brokers_in(data, count=1)
    with Admin(bootstrap_servers=alone.bootstrap_servers) as admin:
        for node in (2, 3):
            admin.unregister_broker(node)
        assert [node.id for node in admin.describe_cluster().nodes] == [1]
    read = read_all(alone.bootstrap_servers, "broker", 2)
    assert [number for _, number in read[0]] == list(range(601))
