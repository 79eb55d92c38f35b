"""kafka-streams-groups.sh and `ottla streams-groups`, line by line, against one group."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.members import wait_for
from tests.conformance.streams.play import Play, info, subtopology
from tests.conformance.streams.test_other_apis import commit

from .apache_kafka import SCRIPT, skip_without

pytestmark = pytest.mark.timeout(300)
TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
COMMANDS = {"kafka": [str(SCRIPT), "tool", TOOL], "ottla": [sys.executable, "-m", "ottla", "streams-groups"]}


@pytest.fixture
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    """A word count whose tasks change hands; its offsets are committed in part."""
    skip_without("kafka-tools-4.3.1", request)
    with EmbeddedBroker({}) as embedded:
        wire = Wire(embedded.address, is_kafka=False)
        play = Play(wire, TopicFactory(wire))
        through, store = f"{play.group_id}-words-repartition", f"{play.group_id}-counts-changelog"
        play.topology = [
            subtopology("0", sources=[play.topic("lines", 3)], sinks=[through]),
            subtopology("1", repartition=[info(through)], changelogs=[info(store)]),
        ]
        play.enter("A", user_endpoint=7001)
        wait_for(lambda: play.partitions(through) == 3 and play.partitions(store) == 3)
        play.settle("A", lambda answer: not answer.status)
        play.enter("B")
        assert commit(play, "A", play.epochs["A"], 0, 1) == "NONE"
        yield play
        wire.close()


def printed(command: list[str], play: Play, *words: str) -> list[list[str]]:
    """The lines on standard output, in words; Kafka's tool has rows in the order of hash tables, and "" where Ottla has "-"."""
    host, port = play.wire.address
    done = subprocess.run(
        [*command, "--bootstrap-server", f"{host}:{port}", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [
        line.split() for line in done.stdout.splitlines() if line.strip() and not line.startswith("Error: Streams")
    ]
    return sorted([word for word in line if word != "-"] for line in lines)


def both(play: Play, *words: str) -> tuple[list[list[str]], list[list[str]]]:
    return printed(COMMANDS["ottla"], play, *words), printed(COMMANDS["kafka"], play, *words)


def test_every_line_is_that_of_kafkas_tool(play: Play) -> None:
    group = ["--group", play.group_id]
    compared = 0
    for words in (
        ["--list"],
        ["--list", "--state"],
        ["--list", "--state", "Reconciling"],
        ["--list", "--state", "stable,empty"],
        ["--describe", *group],
        ["--describe", *group, "--offsets", "--verbose"],
        ["--describe", *group, "--members"],
        ["--describe", *group, "--members", "--verbose"],
        ["--describe", *group, "--state"],
        ["--describe", "--all-groups", "--state", "--verbose"],
    ):
        ours, theirs = both(play, *words)
        assert ours == theirs, words
        compared += len(ours)
    assert compared > 20
    play.quit("A")
    play.quit("B")
    (lines,) = play.topology[0].source_topics
    for words in (
        ["--describe", *group],
        ["--describe", *group, "--state"],
        ["--reset-offsets", *group, "--to-latest", "--all-input-topics", "--dry-run"],
        ["--reset-offsets", *group, "--to-earliest", "--input-topic", f"{lines}:0,1", "--dry-run"],
        ["--reset-offsets", *group, "--to-offset", "0", "--input-topic", lines, "--execute"],
        ["--reset-offsets", *group, "--shift-by", "1", "--all-input-topics", "--dry-run"],
        ["--delete-offsets", *group, "--input-topic", lines],
    ):
        ours, theirs = both(play, *words)
        assert ours == theirs, words


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(
    ("options", "left"),
    [([], (3, 3)), (["--delete-internal-topic"], (0, 3)), (["--delete-all-internal-topics"], (0, 0))],
)
def test_internal_topics_are_deleted_with_a_reset(
    play: Play, command: list[str], options: list[str], left: tuple[int, int]
) -> None:
    """`--delete-all-internal-topics` wins over a topic that is named."""
    play.quit("A")
    play.quit("B")
    through, store = f"{play.group_id}-words-repartition", f"{play.group_id}-counts-changelog"
    (lines,) = play.topology[0].source_topics
    words = ["--reset-offsets", "--group", play.group_id, "--to-earliest", "--all-input-topics", "--execute", *options]
    named = ["--delete-internal-topic", through] if left == (0, 0) else [through] if options else []
    plan = sorted([["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], *([play.group_id, lines, p, "0"] for p in "01")])
    assert printed(command, play, *words, *named) == plan
    wait_for(lambda: (play.partitions(through), play.partitions(store)) == left)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_offsets_of_all_topics_are_deleted(play: Play, command: list[str]) -> None:
    play.quit("A")
    play.quit("B")
    rows = printed(command, play, "--delete-offsets", "--group", play.group_id, "--all-input-topics")
    (lines,) = play.topology[0].source_topics
    assert [lines, "0", "Successful"] in rows
    assert [lines, "1", "Successful"] in rows
    assert len(rows) == 4


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_group_is_deleted_with_its_topics(play: Play, command: list[str]) -> None:
    play.quit("A")
    play.quit("B")
    rows = printed(command, play, "--delete", "--group", play.group_id, "--delete-all-internal-topics")
    subjects = "requested streams groups", "associated internal topics of the streams groups"
    assert rows == sorted(f"Deletion of {what} ('{play.group_id}') was successful.".split() for what in subjects)
    internal = [f"{play.group_id}-words-repartition", f"{play.group_id}-counts-changelog"]
    wait_for(lambda: not any(map(play.partitions, internal)))
    assert printed(COMMANDS["ottla"], play, "--list") == []
