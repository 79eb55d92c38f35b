"""AlterReplicaLogDirs, over a socket: what can be asked of a broker with one log directory. Moves are in tests/crash."""

import pytest

from ottla.protocol.errors import INVALID_TOPIC_EXCEPTION, LOG_DIR_NOT_FOUND, NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

from .conftest import TopicFactory, Wire, versions

API = AlterReplicaLogDirsRequest


def home(wire: Wire) -> str:
    (directory,) = wire.send(DescribeLogDirsRequest(topics=[]), 1).results
    return str(directory.log_dir)


def alter(wire: Wire, version: int, *moves: tuple[str, str, list[int]]) -> dict[tuple[str, int], int]:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=indexes)])
            for path, name, indexes in moves
        ]
    )
    results = wire.send(request, version).results
    return {(topic.topic_name, part.partition_index): part.error_code for topic in results for part in topic.partitions}


@pytest.mark.parametrize("version", versions(API))
def test_the_present_directory_of_a_partition_is_accepted(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(2)
    topic.append(3)
    codes = alter(broker, version, (home(broker), topic.name, [0, 1, 7]), (home(broker), "no-such-topic", [0]))
    assert codes == {
        (topic.name, 0): NONE,
        (topic.name, 1): NONE,
        (topic.name, 7): UNKNOWN_TOPIC_OR_PARTITION,
        ("no-such-topic", 0): UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("path", ["/no/such/directory", "relative", ""])
def test_no_such_directory(broker: Wire, make_topic: TopicFactory, path: str) -> None:
    topic = make_topic()
    assert alter(broker, 2, (path, topic.name, [0])) == {(topic.name, 0): LOG_DIR_NOT_FOUND}


def test_nothing_is_asked(broker: Wire) -> None:
    assert alter(broker, 2) == {}
    assert broker.send(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=home(broker))]), 2).results == []


@pytest.mark.parametrize(
    ("name", "index", "code"),
    [
        ("a b", 0, LOG_DIR_NOT_FOUND),
        ("", 0, LOG_DIR_NOT_FOUND),
        ("x" * 250, 0, INVALID_TOPIC_EXCEPTION),
        ("t", -1, LOG_DIR_NOT_FOUND),
    ],
)
def test_topics_that_cannot_be(broker: Wire, name: str, index: int, code: int) -> None:
    assert alter(broker, 2, ("/nowhere", name, [index])) == {(name, index): code}


def test_a_partition_twice(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic()
    codes = alter(broker, 2, ("/nowhere", topic.name, [0, 0]), (home(broker), topic.name, [0]))
    assert codes == {(topic.name, 0): NONE}
