"""Groups of real clients: two to five members (three in `make test`), one leaves, a static one restarts, one is killed. Exactly
the remaining ones have all partitions, and no record is missed, nor read twice after a clean hand-over.

With `--interop` (`make interop`) every client and assignor; without, one of each kind. Against Apache Kafka (`--broker`) it
needs the CONFIGS of conftest.py.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .clients.environments import Jars
from .conftest import Cluster
from .members.group import ProcessGroup, python_member
from .programs import command_of

PARTITIONS = 10
STATIC = "i1"
_BRIEF_MOST = 3
"""Members at the most without `--interop`."""
JAVA = Jars(("org.apache.kafka:kafka-clients:4.4.0", "org.slf4j:slf4j-nop:1.7.36"), ("Member",))
pytestmark = pytest.mark.timeout(240)


@dataclass(frozen=True)
class Kind:
    """A client with its settings.

    most      members at the most
    instance  the group.instance.id of the one that restarts; empty for none
    is_brief  whether it runs in `make test`
    """

    name: str
    module: str
    settings: dict[str, str] = field(default_factory=dict)
    most: int = 5
    instance: str = STATIC
    is_brief: bool = False

    def command(self) -> list[str]:
        if self.module != "java":
            return python_member(self.module)
        return command_of(JAVA)


def confluent(assignor: str, is_brief: bool = False) -> Kind:
    settings = {
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "200",
        "topic.metadata.refresh.interval.ms": "500",
    }
    settings["partition.assignment.strategy"] = assignor
    return Kind(f"confluent-{assignor}", "confluent", settings, is_brief=is_brief)


def java(assignor: str) -> Kind:
    settings = {"group.protocol": "classic", "session.timeout.ms": "6000", "heartbeat.interval.ms": "200"}
    settings["partition.assignment.strategy"] = f"org.apache.kafka.clients.consumer.{assignor}Assignor"
    return Kind(f"java-{assignor}", "java", settings, 3)


# kafka-python's range and roundrobin lose members where static ones stand between others (3.0.12; against Apache Kafka too).
KINDS = [
    Kind("confluent-consumer", "confluent", {"group.protocol": "consumer"}, is_brief=True),
    confluent("cooperative-sticky", is_brief=True),
    confluent("range"),
    confluent("roundrobin"),
    Kind("aiokafka-range", "with_aiokafka", {"assignor": "range"}, is_brief=True),
    Kind("aiokafka-roundrobin", "with_aiokafka", {"assignor": "roundrobin"}),
    Kind("aiokafka-sticky", "with_aiokafka", {"assignor": "sticky"}),
    Kind("kafka-python-range", "with_kafka_python", {"assignor": "range"}, instance="", is_brief=True),
    Kind("kafka-python-roundrobin", "with_kafka_python", {"assignor": "roundrobin"}, instance=""),
    Kind("kafka-python-cooperative-sticky", "with_kafka_python", {"assignor": "cooperative-sticky"}),
    Kind("java-consumer", "java", {"group.protocol": "consumer"}, 3),
    java("Range"),
    java("CooperativeSticky"),
]


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_members_come_leave_restart_and_die(
    cluster: Cluster, topic: str, group: str, kind: Kind, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_whole = request.config.getoption("--interop")
    if not (kind.is_brief or is_whole):
        pytest.skip("runs with --interop")
    command = kind.command()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, -1)])[topic].result(timeout=30)
    members = ProcessGroup(command, cluster.bootstrap, group, topic, PARTITIONS, kind.settings, tmp_path)
    try:
        _come_and_leave(members, kind, kind.most if is_whole else _BRIEF_MOST)
        if kind.instance:
            before = members.until_dealt()
            members.stop(members.members[-1])
            members.start(kind.instance)
            members.produce(200)
            assert members.until_dealt() == before  # nobody else has seen anything of it
            members.until_read()
            assert members.twice() == []
        members.kill(members.members[0])
        members.produce(200)
        members.until_dealt()
        members.until_read()
    finally:
        members.close()


def _come_and_leave(members: ProcessGroup, kind: Kind, most: int) -> None:
    """Two members, then `most`, then one less; the static one is the last of the list."""
    members.start()
    members.start(kind.instance)
    members.produce(200)
    members.until_dealt()
    for _ in range(most - 2):
        members.start()
    members.produce(400)
    members.until_dealt()
    members.stop(members.members[-1])
    members.produce(200)
    members.until_dealt()
    members.until_read()
    assert members.twice() == []
    members.members.append(members.members.pop(1))
