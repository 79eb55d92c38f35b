"""Kafka Streams applications with `group.protocol=streams` (KIP-1071): a word count with a repartition and a changelog topic,
in one to four instances that are stopped, killed and started again, counts every word exactly. `make interop` runs it.

With `--broker` the same against Apache Kafka, started with the configs of conftest.py.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.protocol.errors import NONE
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from tests.conformance.conftest import Wire
from tests.conformance.consumers import configure

from .conftest import PARTITIONS, Cluster
from .test_streams import SECONDS, Application, Counts, command, has_counted, running, topics_of, write

__all__ = ["command"]
pytestmark = pytest.mark.timeout(240)


class Counting:
    """The application: its topics, its group, and its instances."""

    def __init__(self, bootstrap: str, application_id: str, topic: str, command: list[str], directory: Path) -> None:
        self.bootstrap = bootstrap
        self.application_id = application_id
        self.topic = topic
        self.output = f"{topic}-counts"
        self._command = command
        self._directory = directory
        host, _, port = bootstrap.partition(":")
        self.wire = Wire((host, int(port)), is_kafka=False)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (topic, self.output)]).values():
            made.result(timeout=30)
        configs = {"session_timeout_ms": "6000", "heartbeat_interval_ms": "500", "initial_rebalance_delay_ms": "0"}
        self.configure(**configs)

    def configure(self, **configs: str) -> None:
        """Set configs of the group, without "streams."."""
        configure(self.wire, self.application_id, **{f"streams_{name}": value for name, value in configs.items()})

    def state_dir(self, number: int) -> Path:
        return self._directory / f"state-{number}"

    def instance(self, number: int, guarantee: str) -> contextlib.AbstractContextManager[Application]:
        words = [self.bootstrap, self.application_id, self.topic, self.output, str(self.state_dir(number)), guarantee]
        return running([*self._command, *words, "1", "0", "streams"], self._directory / f"errors-{number}")

    def described(self) -> Any:
        request = StreamsGroupDescribeRequest(group_ids=[self.application_id])
        group = self.wire.send(request, 0).groups[0]
        assert group.error_code == NONE, group.error_message
        return group

    def until(self, reached: Callable[[Any], bool]) -> Any:
        """Wait until the description of the group is as wanted."""
        deadline = time.monotonic() + SECONDS
        while not reached(group := self.described()):
            assert time.monotonic() < deadline, group
            time.sleep(0.1)
        return group

    def listed(self) -> Any:
        """The group as ListGroups has it."""
        groups = self.wire.send(ListGroupsRequest(), 5).groups
        (group,) = (row for row in groups if row.group_id == self.application_id)
        return group

    def until_empty(self) -> None:
        """Wait until the group has no members: those of the classic protocol do not leave, their sessions end."""
        deadline = time.monotonic() + SECONDS
        while (group := self.listed()).group_state != "Empty":
            assert time.monotonic() < deadline, group
            time.sleep(0.1)


def tasks(group: Any, role: str) -> list[tuple[str, int]]:
    """The tasks that members have in a role, sorted."""
    return sorted(
        (row.subtopology_id, partition)
        for member in group.members
        for row in getattr(member.assignment, role)
        for partition in row.partitions
    )


ALL = [(name, number) for name in "01" for number in range(PARTITIONS)]


def is_stable(members: int) -> Callable[[Any], bool]:
    return lambda group: group.group_state == "Stable" and len(group.members) == members


@pytest.fixture
def counting(cluster: Cluster, topic: str, group: str, tmp_path: Path, command: list[str]) -> Iterator[Counting]:
    counting = Counting(cluster.bootstrap, group, topic, command, tmp_path)
    yield counting
    counting.wire.close()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_word_count_stopped_in_the_middle_is_exact(counting: Counting, guarantee: str) -> None:
    written = write(counting.bootstrap, counting.topic, range(300))
    with closing(Counts(counting.bootstrap, counting.output)) as counts:
        with counting.instance(1, guarantee) as application:
            counts.until(partial(has_counted, written))
            written += write(counting.bootstrap, counting.topic, range(300, 3000))
            counts.until(lambda counts: counts.latest().total() > 1500)
            assert (counting.listed().group_type, counting.listed().protocol_type) == ("streams", "streams")
            assert tasks(counting.until(is_stable(2)), "active_tasks") == ALL
            application.stop()
        assert topics_of(counting.bootstrap, counting.application_id) == {"counts-changelog", "words-repartition"}
        counting.until_empty()
        shutil.rmtree(counting.state_dir(1))  # what it knows is in the changelog
        with counting.instance(1, guarantee) as application:
            counts.until(partial(has_counted, written))
            application.stop()
        assert {word: list(range(1, total + 1)) for word, total in written.items()} == counts.of


def test_instances_come_go_and_die(counting: Counting) -> None:
    """Exactly once, with standbys: one instance, then four, one of which is killed, then two that take over its tasks."""
    guarantee = "exactly_once_v2"
    counting.configure(num_standby_replicas="1")
    written = write(counting.bootstrap, counting.topic, range(300))
    with closing(Counts(counting.bootstrap, counting.output)) as counts, contextlib.ExitStack() as stack:
        instances = [stack.enter_context(counting.instance(1, guarantee))]
        counts.until(partial(has_counted, written))
        for number in (2, 3, 4):
            instances.append(stack.enter_context(counting.instance(number, guarantee)))
            written += write(counting.bootstrap, counting.topic, range(300 * (number - 1), 300 * number))
        group = counting.until(is_stable(8))
        assert tasks(group, "active_tasks") == ALL
        assert tasks(group, "standby_tasks") == [("1", number) for number in range(PARTITIONS)]
        written += write(counting.bootstrap, counting.topic, range(1200, 2400))
        instances.pop().close()  # kill -9, with tasks in flight
        counts.until(partial(has_counted, written))
        counting.until(is_stable(6))
        instances.pop().stop()
        group = counting.until(is_stable(4))
        assert tasks(group, "active_tasks") == ALL
        written += write(counting.bootstrap, counting.topic, range(2400, 3000))
        counts.until(partial(has_counted, written))
        for instance in instances:
            instance.stop()
        counting.until_empty()
        assert {word: list(range(1, total + 1)) for word, total in written.items()} == counts.of


def test_an_application_moves_from_the_classic_protocol_and_back(counting: Counting) -> None:
    """All instances are stopped in between; committed offsets stay."""
    written = write(counting.bootstrap, counting.topic, range(300))
    words = [
        counting.bootstrap,
        counting.application_id,
        counting.topic,
        counting.output,
        str(counting.state_dir(1)),
        "exactly_once_v2",
    ]
    with closing(Counts(counting.bootstrap, counting.output)) as counts:
        for step, protocol in enumerate(("classic", "streams", "classic"), 1):
            errors = counting.state_dir(1).with_name("errors")
            with running([*counting._command, *words, "1", "0", protocol], errors) as application:
                counts.until(partial(has_counted, written))
                written += write(counting.bootstrap, counting.topic, range(300 * step, 300 * step + 300))
                counts.until(partial(has_counted, written))
                assert counting.listed().group_type == protocol
                application.stop()
            counting.until_empty()
        assert {word: list(range(1, total + 1)) for word, total in written.items()} == counts.of
