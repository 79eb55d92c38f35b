"""`ottla consumer-groups` and `ottla groups`, on Ottla and on Apache Kafka."""

import time
from pathlib import Path

import pytest

from ottla import Admin, TopicPartition
from ottla.coordinators.groups.classic.embedded import encode_assignment
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.consumers import Consumer, settle
from tests.conformance.members import NO_TOPICS, Member, new_group

from .commands import Commands
from .conftest import Produce, fresh


@pytest.fixture
def group(admin: Admin, topic: str, produce: Produce) -> str:
    """A group that is at 2 of 5 in the first partition, and at 0 of 0 in the second."""
    produce(topic, 5)
    name = fresh("g")
    admin.alter_consumer_group_offsets(name, {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 0}).check()
    return name


def test_list(commands: Commands, group: str) -> None:
    assert group in commands.output("consumer-groups", "--list").split()
    assert f"\n{group} Classic Empty\n" in commands.output("consumer-groups", "--list", "--state", "--type")
    assert group not in commands.json("consumer-groups", "--list", "--state", "stable")
    assert f"\n{group} Classic \n" in commands.output("groups", "--list")
    assert f"\n{group} Classic \n" in commands.output("groups", "--list", "--consumer")
    assert group not in commands.output("groups", "--list", "--share")
    assert {"group": group, "type": "classic", "protocol": ""} in commands.json(
        "groups", "--list", "--group-type", "classic"
    )


def test_a_group_without_members(commands: Commands, group: str, topic: str) -> None:
    result = commands.run("consumer-groups", "--describe", "--group", group)
    assert result.stderr == f"\nConsumer group '{group}' has no active members.\n"
    assert commands.output("consumer-groups", "--describe", "--group", group) == (
        "\nGROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID\n"
        f"{group} {topic} 0 2 5 3 - - -\n{group} {topic} 1 0 0 0 - - -\n"
    )
    assert f"{group} {topic} 0 - 2 5 3 - - -\n" in commands.output(
        "consumer-groups", "--describe", "--group", group, "--verbose"
    )
    rows = commands.json("consumer-groups", "--describe", "--group", group)
    assert (rows[0]["current_offset"], rows[0]["log_end_offset"], rows[0]["lag"]) == (2, 5, 3)
    state = commands.output("consumer-groups", "--describe", "--group", group, "--state")
    assert state.startswith("\nGROUP COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE #MEMBERS\n")
    assert state.endswith(" - Empty 0\n")
    assert commands.output("consumer-groups", "--describe", "--group", group, "--members") == (
        "\nGROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS\n"
    )
    for partition in range(2):
        commands.output("consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:{partition}")
        left = commands.output("consumer-groups", "--describe", "--all-groups")
        assert (f"\n{group} {topic} 1 " in left) == (partition == 0)


def test_members_of_a_classic_group(commands: Commands, wire: Wire, topic: str) -> None:
    group = new_group(wire)
    member = Member(wire, group, instance="i1")
    member.join()
    member.sync({member.member_id: encode_assignment({topic: [0, 1]}, NO_TOPICS)})
    lines = commands.output("consumer-groups", "--describe", "--group", group, "--members", "--verbose").splitlines()
    assert lines[1].strip() == (
        "GROUP CONSUMER-ID GROUP-INSTANCE-ID HOST CLIENT-ID #PARTITIONS CURRENT-EPOCH CURRENT-ASSIGNMENT TARGET-EPOCH "
        "TARGET-ASSIGNMENT"
    )
    assert lines[2] == f"{group} {member.member_id} i1 /127.0.0.1 conformance 2 - {topic}:0,1 - -"
    offsets = commands.output("consumer-groups", "--describe", "--group", group)
    assert f"{group} {topic} 1 - 0 - {member.member_id} /127.0.0.1 conformance\n" in offsets
    why = commands.refused(
        "consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute"
    )
    assert why == f"consumer group '{group}' is Stable: stop its members, then reset its offsets"
    others = [new_group(wire), fresh("g")]
    words = ["--reset-offsets", "--group", others[0], "--group", group, "--group", others[1]]
    result = commands.run("consumer-groups", *words, "--topic", f"{topic}:0", "--to-latest", "--execute")
    assert result.exit_code == 1
    assert [line.split() for line in result.stdout.splitlines()[2:]] == [[other, topic, "0", "0"] for other in others]
    assert f"ottla: {why}\n" in result.stderr
    assert "NON_EMPTY_GROUP" in commands.refused("consumer-groups", "--delete", "--group", group)
    member.leave()


def test_members_of_a_group_of_the_new_protocol(commands: Commands, wire: Wire) -> None:
    subject, group = TopicFactory(wire)(2), new_group(wire)
    member = Consumer(wire, group)
    member.join(subject.name)
    settle(wire, group, member, until=lambda: member.partitions_of(subject) == {0, 1})
    row = commands.json("consumer-groups", "--describe", "--group", group, "--members", "--verbose")[0]
    assert (row["consumer_id"], row["current_assignment"], row["target_assignment"]) == (
        member.member_id,
        f"{subject.name}:0,1",
        f"{subject.name}:0,1",
    )
    assert row["current_epoch"] == row["target_epoch"] == member.epoch
    state = commands.json("consumer-groups", "--describe", "--group", group, "--state", "--verbose")[0]
    assert (state["assignment_strategy"], state["state"], state["members"]) == ("uniform", "Stable", 1)
    assert state["group_epoch"] == state["target_assignment_epoch"]
    member.leave()


@pytest.mark.parametrize(
    ("target", "first"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 5),
        (["--to-current"], 2),
        (["--to-offset", "4"], 4),
        (["--to-offset", "99"], 5),
        (["--shift-by", "-1"], 1),
        (["--shift-by", "2"], 4),
        (["--by-duration", "PT1H"], 0),
        (["--to-datetime", "2020-01-01T00:00:00.000"], 0),
    ],
)
def test_reset(commands: Commands, group: str, topic: str, target: list[str], first: int) -> None:
    words = ["--reset-offsets", "--group", group, "--all-topics", *target]
    plan = f"\nGROUP TOPIC PARTITION NEW-OFFSET\n{group} {topic} 0 {first}\n{group} {topic} 1 0\n"
    for how in ("--dry-run", "--execute"):
        assert commands.output("consumer-groups", *words, how).endswith(plan)
        described = commands.json("consumer-groups", "--describe", "--group", group)
        assert [row["current_offset"] for row in described] == [2 if how == "--dry-run" else first, 0]


def test_without_dry_run_nothing_is_done(commands: Commands, group: str, topic: str) -> None:
    result = commands.run(
        "consumer-groups", "--reset-offsets", "--group", group, "--topic", f"{topic}:0", "--to-earliest"
    )
    assert result.exit_code == 0
    assert "WARN: without --execute nothing is changed" in result.stderr
    assert commands.json("consumer-groups", "--describe", "--group", group)[0]["current_offset"] == 2


def test_an_exported_plan_can_be_executed(commands: Commands, group: str, topic: str, tmp_path: Path) -> None:
    words = ["--reset-offsets", "--group", group]
    plan = tmp_path / "plan.csv"
    exported = commands.output("consumer-groups", *words, "--all-topics", "--to-current", "--export", "--dry-run")
    assert exported == f"{topic},0,2\n{topic},1,0\n"
    plan.write_text(exported, encoding="utf-8")
    commands.output("consumer-groups", *words, "--all-topics", "--to-latest", "--execute")
    commands.output("consumer-groups", *words, "--from-file", str(plan), "--execute")
    assert [row["current_offset"] for row in commands.json("consumer-groups", "--describe", "--group", group)] == [2, 0]
    both = commands.output(
        "consumer-groups", *words, "--group", fresh("g"), "--topic", topic, "--to-earliest", "--export", "--dry-run"
    )
    assert both.splitlines()[0] == f"{group},{topic},0,0"
    everyone = ["--reset-offsets", "--all-groups", "--topic", topic, "--to-earliest", "--export", "--dry-run"]
    assert (
        f"{group},{topic},0,0" in commands.run("consumer-groups", *everyone).stdout.splitlines()
    )  # others may have members


def test_resetting_offsets_creates_a_missing_group(commands: Commands, topic: str) -> None:
    group = fresh("g")
    words = ["--reset-offsets", "--group", group, "--topic", f"{topic}:1", "--to-earliest", "--execute"]
    assert commands.output("consumer-groups", *words).endswith(f"{group} {topic} 1 0\n")
    assert group in commands.output("consumer-groups", "--list").split()


def test_delete(commands: Commands, group: str, topic: str) -> None:
    words = ["--delete-offsets", "--group", group, "--topic", f"{topic}:0"]
    assert commands.output("consumer-groups", *words) == (
        f"Request succeeded for deleting offsets from group {group}.\n\nTOPIC PARTITION STATUS\n{topic} 0 Successful\n"
    )
    assert len(commands.json("consumer-groups", "--describe", "--group", group)) == 1
    unknown = commands.run("consumer-groups", "--delete-offsets", "--group", group, "--topic", "no-such-topic")
    assert (unknown.exit_code, "no-such-topic" in unknown.stdout) == (1, True)
    assert commands.output("consumer-groups", "--delete", "--group", group) == (
        f"Deletion of requested consumer groups ('{group}') was successful.\n"
    )
    assert "GROUP_ID_NOT_FOUND" in commands.refused("consumer-groups", "--delete", "--group", group)
    assert "GROUP_ID_NOT_FOUND" in commands.refused("consumer-groups", "--describe", "--group", group)


def test_regular_expressions(commands: Commands) -> None:
    assert commands.output("consumer-groups", "--validate-regex", "a.*") == "The regular expression `a.*` is valid.\n"
    result = commands.run("consumer-groups", "--validate-regex", "a(")
    assert result.exit_code == 1
    assert result.stdout.startswith("The regular expression `a(` is invalid: missing )")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "exactly one of --list, --describe, --delete, --reset-offsets, --delete-offsets, --validate-regex"),
        (["--describe"], "--describe requires either --group or --all-groups"),
        (["--describe", "--group", "g", "--members", "--offsets"], "one of --offsets, --members, --state"),
        (["--reset-offsets", "--group", "g", "--to-latest", "--execute"], "exactly one of --topic, --all-topics"),
        (["--reset-offsets", "--group", "g", "--topic", "t", "--execute"], "exactly one of --to-earliest"),
        (
            ["--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"],
            "--dry-run or --execute, not both",
        ),
        (["--reset-offsets", "--group", "g", "--topic", "t", "--by-duration", "1h", "--dry-run"], "no duration"),
        (["--delete-offsets", "--group", "g"], "at least one --topic"),
        (["--list", "--state", "Odd"], "consumer groups have"),
        (["--list", "--group", "g"], "--group can only be used with --describe and --delete and --reset-offsets and"),
        (["--list", "--verbose"], "--verbose can only be used with --describe"),
        (["--list", "--members"], "--members can only be used with --describe"),
        (["--describe", "--group", "g", "--type", "classic"], "--type can only be used with --list"),
        (["--describe", "--group", "g", "--state", "Empty"], "--state takes names of states with --list only"),
        (["--describe", "--group", "g", "--topic", "t"], "--topic can only be used with --reset-offsets and"),
        (["--delete-offsets", "--group", "g", "--topic", "t", "--all-groups"], "--all-groups can only be used with"),
    ],
)
def test_wrong_usage(commands: Commands, words: list[str], why: str) -> None:
    assert why in commands.misused("consumer-groups", *words)


def test_failures_are_one_line(commands: Commands, group: str, topic: str) -> None:
    words = ["--reset-offsets", "--group", group, "--to-latest", "--execute", "--topic"]
    assert commands.refused("consumer-groups", *words, "no-such-topic") == "topic no-such-topic does not exist"
    assert commands.refused("consumer-groups", *words, f"{topic}:9") == f"topic {topic} has no partition 9"
    nobody = Commands("127.0.0.1:1")
    begun = time.monotonic()
    assert "127.0.0.1:1" in nobody.refused("consumer-groups", "--list", "--timeout", "300")
    assert time.monotonic() - begun < 30
