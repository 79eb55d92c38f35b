"""`ottla streams-application-reset`, on both brokers."""

from pathlib import Path

import pytest

from ottla import Admin, Consumer, NewTopic, TopicPartition
from tests.conformance.members import wait_for

from .commands import Commands
from .conftest import Produce, fresh

COMMAND = "streams-application-reset"


@pytest.fixture
def application(admin: Admin, topic: str, produce: Produce) -> str:
    """An application that has read 4 of 6 records of an input topic, with three internal topics, and others."""
    name = fresh("app")
    produce(topic, 6)
    admin.alter_consumer_group_offsets(name, {TopicPartition(topic, 0): 4}).check()
    internal = [
        f"{name}-{suffix}"
        for suffix in ("a-changelog", "b-repartition", "output", "x-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-07-topic")
    ]
    admin.create_topics([NewTopic(internal_name, 1, 1) for internal_name in internal]).check()
    wait_for(lambda: set(internal) <= set(admin.list_topics()))
    return name


def offset(admin: Admin, application: str, topic: str) -> int:
    return admin.list_consumer_group_offsets([application])[application][TopicPartition(topic, 0)].offset


def test_reset(commands: Commands, admin: Admin, application: str, topic: str) -> None:
    words = ["--application-id", application, "--input-topics", topic]
    inferred = [
        f"{application}-a-changelog",
        f"{application}-b-repartition",
        f"{application}-x-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-07-topic",
    ]
    lines = [
        f"Reset-offsets for input topics [{topic}]",
        f"Following input topics offsets will be reset to (for consumer group {application})",
        f"Topic: {topic} Partition: 0 Offset: 0",
        f"Topic: {topic} Partition: 1 Offset: 0",
        "Done.",
        f"Deleting inferred internal topics [{', '.join(inferred)}]",
        "Done.",
    ]
    dry = commands.output(COMMAND, *words, "--dry-run").splitlines()
    assert dry[0].startswith("----Dry run displays the actions")
    assert dry[1:] == lines
    assert offset(admin, application, topic) == 4
    assert commands.output(COMMAND, *words).splitlines() == lines
    assert offset(admin, application, topic) == 0
    wait_for(lambda: not set(inferred) & set(admin.list_topics()))
    assert f"{application}-output" in admin.list_topics()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("", 0),
        ("--to-earliest", 0),
        ("--to-latest", 6),
        ("--to-offset 3", 3),
        ("--to-offset 99", 6),
        ("--shift-by -1", 3),
        ("--shift-by -9", 0),
        ("--by-duration P1D", 0),
        ("--to-datetime 2100-01-01T00:00:00.000", 6),
    ],
)
def test_targets(commands: Commands, admin: Admin, application: str, topic: str, target: str, expected: int) -> None:
    result = commands.json(COMMAND, "--application-id", application, "--input-topics", topic, *target.split())
    assert result["offsets"][0] == {"topic": topic, "partition": 0, "offset": expected}
    assert len(result["deleted_topics"]) == 3
    assert offset(admin, application, topic) == expected


def test_offsets_from_a_file(commands: Commands, admin: Admin, application: str, topic: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,2\n")
    words = ["--application-id", application, "--input-topics", topic, "--from-file", str(plan)]
    assert f"has no offset of {topic}-1" in commands.refused(COMMAND, *words)
    plan.write_text(f"{topic},0,2\n{topic},1,0\n")
    commands.output(COMMAND, *words)
    assert offset(admin, application, topic) == 2


def test_intermediate_topics_are_skipped_to_their_end(
    commands: Commands, admin: Admin, application: str, topic: str
) -> None:
    output = commands.output(COMMAND, "--application-id", application, "--intermediate-topics", topic)
    assert f"Seek-to-end for intermediate topics [{topic}]\n" in output
    assert offset(admin, application, topic) == 6


def test_internal_topics_by_name(commands: Commands, admin: Admin, application: str, topic: str) -> None:
    words = ["--application-id", application, "--internal-topics"]
    assert "are no internal topics of" in commands.refused(COMMAND, *words, f"{application}-output")
    output = commands.output(COMMAND, *words, f"{application}-a-changelog")
    assert f"Deleting specified internal topics [{application}-a-changelog]" in output
    wait_for(lambda: f"{application}-a-changelog" not in admin.list_topics())
    assert f"{application}-b-repartition" in admin.list_topics()


def test_a_topic_that_does_not_exist(commands: Commands, application: str) -> None:
    assert (
        commands.refused(COMMAND, "--application-id", application, "--input-topics", "typo")
        == "topics typo do not exist"
    )


def test_an_application_that_runs(
    commands: Commands,
    admin: Admin,
    application: str,
    topic: str,
    bootstrap_servers: str,
    request: pytest.FixtureRequest,
) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=application) as consumer:
        consumer.subscribe([topic])
        while not admin.describe_consumer_groups([application])[application].members:
            consumer.consume(1, timeout=0.2)
        words = ["--application-id", application, "--input-topics", topic]
        assert "stop all its instances" in commands.refused(COMMAND, *words)
        assert "Force deleting all active members" in commands.output(COMMAND, *words, "--force")


def test_options_that_contradict_each_other(commands: Commands) -> None:
    words = ["--application-id", "a", "--to-latest", "--to-earliest"]
    assert "at most one of" in commands.misused(COMMAND, *words)
