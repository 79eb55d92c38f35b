"""Kafka's own tools and share groups: kafka-share-groups.sh lists, describes, resets and deletes; DumpLogSegments reads
__share_group_state."""

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Topic, TopicFactory, Wire
from tests.conformance.consumers import configure
from tests.conformance.share_members import Sharer, all_of, initialize, offsets, places, settle, share_group, write

from .apache_kafka import SCRIPT, skip_without

pytestmark = pytest.mark.timeout(300)
CONFIGS = {"share.coordinator.snapshot.update.records.per.snapshot": "2"}


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Wire]]:
    """The address, and a connection."""
    skip_without("kafka-tools-4.3.1", request)
    address = request.config.getoption("--broker")
    if address:
        host, _, port = address.rpartition(":")
        wire = Wire((host, int(port)), is_kafka=True)
        yield address, wire
        wire.close()
        return
    with EmbeddedBroker(CONFIGS, data_dir=tmp_path / "data") as embedded:
        wire = Wire(embedded.address, is_kafka=False)
        yield embedded.bootstrap_servers, wire
        wire.close()


def tool(bootstrap: str, *arguments: str) -> list[list[str]]:
    """The lines that kafka-share-groups.sh prints, in words."""
    command = [str(SCRIPT), "tool", "org.apache.kafka.tools.consumer.group.ShareGroupCommand"]
    done = subprocess.run(
        [*command, "--bootstrap-server", bootstrap, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in done.stdout.splitlines() if line.strip() and not line.startswith("SLF4J")]


def offsets_told(bootstrap: str, group_id: str) -> dict[tuple[str, int], list[str]]:
    """Start offset and lag by topic and partition."""
    lines = tool(bootstrap, "--describe", "--group", group_id, "--offsets")
    head = next(index for index, words in enumerate(lines) if words[0] == "GROUP")
    assert lines[head] == ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]
    return {(words[1], int(words[2])): words[3:] for words in lines[head + 1 :]}


def test_list_and_describe(broker: tuple[str, Wire]) -> None:
    bootstrap, wire = broker
    topic, group_id = TopicFactory(wire)(2), share_group(wire)
    configure(wire, group_id, share_assignment_interval_ms="0")
    member = Sharer(wire, group_id)
    member.join(topic.name)
    settle(all_of(topic, 2), member)
    assert [group_id] in tool(bootstrap, "--list")
    assert [group_id, "Stable"] in tool(bootstrap, "--list", "--state")
    state = tool(bootstrap, "--describe", "--group", group_id, "--state")[-1]
    assert (state[0], state[-2:]) == (group_id, ["Stable", "1"])
    (row,) = tool(bootstrap, "--describe", "--group", group_id, "--members")[1:]
    assert row == [group_id, member.member_id, "/127.0.0.1", "conformance", "2", f"{topic.name}:0,1"]
    assert offsets_told(bootstrap, group_id) == {(topic.name, index): ["-", "-"] for index in (0, 1)}
    member.beat()
    member.leave()


def fill(wire: Wire) -> tuple[Topic, int]:
    """A topic of two partitions with 5 old records and 3 new ones in the first, and a time in between, in ms."""
    topic = TopicFactory(wire)(2)
    now = int(time.time() * 1000)
    topic.append(5, timestamp=now - 7_200_000)
    topic.append(3, timestamp=now)
    return topic, now - 3_600_000


def test_offsets_are_reset_and_deleted_and_so_is_the_group(broker: tuple[str, Wire]) -> None:
    bootstrap, wire = broker
    (topic, between), group_id = fill(wire), share_group(wire)
    reset = ["--reset-offsets", "--group", group_id, "--topic", topic.name]

    def reset_offsets(*how: str) -> dict[int, str]:
        lines = tool(bootstrap, *reset, *how)
        head = next(index for index, words in enumerate(lines) if words[0] == "GROUP")
        return {int(words[2]): words[3] for words in lines[head + 1 :]}

    at = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime(between / 1000))
    assert reset_offsets("--to-earliest", "--execute") == {0: "0", 1: "0"}
    assert offsets_told(bootstrap, group_id) == {(topic.name, 0): ["0", "8"], (topic.name, 1): ["0", "0"]}
    assert reset_offsets("--to-latest", "--dry-run") == {0: "8", 1: "0"}
    assert places(offsets(wire, group_id))[topic.name, 0] == (0, 8)
    assert reset_offsets("--to-latest", "--execute") == {0: "8", 1: "0"}
    assert offsets_told(bootstrap, group_id)[topic.name, 0] == ["8", "0"]
    assert reset_offsets("--to-datetime", at, "--execute")[0] == "5"
    assert offsets_told(bootstrap, group_id)[topic.name, 0] == ["5", "3"]
    deleted = tool(bootstrap, "--delete-offsets", "--group", group_id, "--topic", topic.name)
    assert [topic.name, "Successful"] in [words[-2:] for words in deleted]
    assert places(offsets(wire, group_id)) == {}
    (message,) = tool(bootstrap, "--delete", "--group", group_id)
    assert " ".join(message) == f"Deletion of requested share groups ('{group_id}') was successful."
    assert [group_id] not in tool(bootstrap, "--list")


def test_a_group_with_members_is_not_reset(broker: tuple[str, Wire]) -> None:
    bootstrap, wire = broker
    topic, group_id = TopicFactory(wire)(1), share_group(wire)
    Sharer(wire, group_id).join(topic.name)
    command = ["--reset-offsets", "--group", group_id, "--topic", topic.name, "--to-earliest", "--execute"]
    done = subprocess.run(
        [
            str(SCRIPT),
            "tool",
            "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
            "--bootstrap-server",
            bootstrap,
            *command,
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert f"Share group '{group_id}' is not empty." in done.stderr


def test_states_are_dumped(broker: tuple[str, Wire], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker"):
        pytest.skip("the files of that broker are not at hand")
    _, wire = broker
    topic, group_id = TopicFactory(wire)(1), share_group(wire)
    initialize(wire, group_id, topic.id, state_epoch=3, start_offset=5)
    for offset in (5, 6, 7):
        assert write(wire, group_id, topic.id, [(offset, offset, 2, 1)], state_epoch=3) == ("NONE", None)
    files = [path for path in (tmp_path / "data").glob("__share_group_state-*/*.log") if path.stat().st_size]
    command = [str(SCRIPT), "tool", "org.apache.kafka.tools.DumpLogSegments", "--share-group-state-decoder"]
    done = subprocess.run(
        [*command, "--print-data-log", "--files", ",".join(map(str, files))],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    payloads = re.findall(r"payload: (.*)", done.stdout)
    assert [("snapshotEpoch" in payload, '"stateEpoch":3' in payload) for payload in payloads] == [
        (True, True),
        (True, False),
        (True, False),
        (True, True),
    ]
    assert '"stateBatches":[{"firstOffset":5,"lastOffset":7,"deliveryState":2,"deliveryCount":1}]' in payloads[-1]
