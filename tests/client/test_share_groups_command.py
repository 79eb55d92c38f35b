"""`ottla share-groups`, on Ottla and on Apache Kafka: what it prints, and what it does."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla import Admin, ShareConsumer
from ottla.cli.main import main

from .conftest import Produce, fresh


def run(bootstrap_servers: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["share-groups", "--bootstrap-server", bootstrap_servers, *words])


def output(bootstrap_servers: str, *words: str) -> str:
    """Run a command that succeeds, and return its output with single blanks."""
    result = run(bootstrap_servers, *words)
    assert result.exit_code == 0, result.output
    return re.sub(" +", " ", result.stdout)


def test_list(bootstrap_servers: str, share_group: str) -> None:
    assert share_group in output(bootstrap_servers, "--list").split()
    assert f"\n{share_group} Empty\n" in output(bootstrap_servers, "--list", "--state")
    assert share_group not in output(bootstrap_servers, "--list", "--state", "stable")
    assert share_group in json.loads(output(bootstrap_servers, "--list", "--json"))


def test_describe_offsets(bootstrap_servers: str, share_group: str, topic: str, produce: Produce) -> None:
    produce(topic, 4)
    assert output(bootstrap_servers, "--describe", "--group", share_group) == (
        f"\nGROUP TOPIC PARTITION START-OFFSET LAG\n{share_group} {topic} 0 0 4\n{share_group} {topic} 1 0 0\n"
    )
    assert output(bootstrap_servers, "--describe", "--group", share_group, "--offsets", "--verbose") == (
        f"\nGROUP TOPIC PARTITION LEADER-EPOCH START-OFFSET LAG\n{share_group} {topic} 0 0 0 4\n{share_group} {topic} 1 0 0 0\n"
    )
    rows = json.loads(output(bootstrap_servers, "--describe", "--group", share_group, "--json"))
    assert rows[0] == {"group": share_group, "topic": topic, "partition": 0, "start_offset": 0, "lag": 4}


def test_describe_members_and_state(bootstrap_servers: str, share_group: str, topic: str) -> None:
    empty = run(bootstrap_servers, "--describe", "--group", share_group, "--members")
    assert (empty.stdout, empty.stderr) == ("", f"\nShare group '{share_group}' has no active members.\n")
    with ShareConsumer(bootstrap_servers=bootstrap_servers, group_id=share_group, client_id="c-1") as consumer:
        consumer.subscribe([topic])
        words = ["--describe", "--group", share_group, "--members", "--verbose"]
        while f"{topic}:0,1" not in (text := output(bootstrap_servers, *words)):
            consumer.poll(0.1)
        titles, row = text.strip().splitlines()
        assert titles == "GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS MEMBER-EPOCH ASSIGNMENT"
        name, member, host, client, count, epoch, assigned = row.split()
        assert (name, member, client, count, assigned) == (share_group, consumer.member_id, "c-1", "2", f"{topic}:0,1")
        assert host.startswith("/127.0.0.1")
        assert int(epoch) > 0
        state = output(bootstrap_servers, "--describe", "--group", share_group, "--state")
        assert re.fullmatch(
            rf"\nGROUP COORDINATOR \(ID\) STATE #MEMBERS\n{share_group} \S+:\d+ \(\d+\) Stable 1\n", state
        )


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (["--to-earliest"], (0, 0)),
        (["--to-latest"], (4, 0)),
        (["--to-datetime", "2020-01-01T00:00:00.000"], (0, 0)),
        (["--to-offset", "2"], (2, 0)),
    ],
)
def test_reset(
    bootstrap_servers: str, share_group: str, topic: str, produce: Produce, target: list[str], offsets: tuple[int, int]
) -> None:
    produce(topic, 4)
    words = ["--reset-offsets", "--group", share_group, "--all-topics", *target]
    plan = "".join(f"{share_group} {topic} {index} {offset}\n" for index, offset in enumerate(offsets))
    for how in ("--dry-run", "--execute"):
        assert output(bootstrap_servers, *words, how).endswith(f"\nGROUP TOPIC PARTITION NEW-OFFSET\n{plan}")
        described = output(bootstrap_servers, "--describe", "--group", share_group)
        expected = (0, 0) if how == "--dry-run" else offsets
        assert f"{share_group} {topic} 0 {expected[0]} {4 - expected[0]}\n{share_group} {topic} 1 0 0\n" in described


def test_an_exported_plan_can_be_executed(
    bootstrap_servers: str, share_group: str, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce(topic, 4)
    words = ["--reset-offsets", "--group", share_group]
    assert output(bootstrap_servers, *words, "--topic", f"{topic}:0", "--to-offset", "3", "--execute")
    plan = tmp_path / "plan.csv"
    plan.write_text(output(bootstrap_servers, *words, "--all-topics", "--to-current", "--export"), encoding="utf-8")
    assert plan.read_text(encoding="utf-8") == f"{topic},0,3\n{topic},1,0\n"
    assert output(bootstrap_servers, *words, "--all-topics", "--to-earliest", "--execute")
    assert output(bootstrap_servers, *words, "--from-file", str(plan), "--execute").endswith(
        f"{share_group} {topic} 0 3\n{share_group} {topic} 1 0\n"
    )
    assert f"{share_group} {topic} 0 3 1\n" in output(bootstrap_servers, "--describe", "--group", share_group)


def test_all_topics_are_the_partitions_with_offsets(bootstrap_servers: str, topic: str) -> None:
    words = ["--reset-offsets", "--group", fresh("s")]
    assert output(bootstrap_servers, *words, "--topic", f"{topic}:1", "--to-earliest", "--execute")
    assert output(bootstrap_servers, *words, "--all-topics", "--to-latest", "--dry-run").endswith(
        f"NEW-OFFSET\n{words[2]} {topic} 1 0\n"
    )


def test_resetting_offsets_creates_a_missing_group(bootstrap_servers: str, topic: str) -> None:
    share_group = fresh("s")
    words = ["--reset-offsets", "--group", share_group, "--topic", f"{topic}:1", "--to-earliest", "--execute"]
    assert output(bootstrap_servers, *words).endswith(f"{share_group} {topic} 1 0\n")
    assert share_group in output(bootstrap_servers, "--list").split()


def test_members_keep_their_offsets(bootstrap_servers: str, share_group: str, topic: str, admin: Admin) -> None:
    with ShareConsumer(bootstrap_servers=bootstrap_servers, group_id=share_group) as consumer:
        consumer.subscribe([topic])
        while not admin.describe_share_groups([share_group])[share_group].members:
            consumer.poll(0.1)
        words = ["--reset-offsets", "--group", share_group, "--topic", topic, "--to-earliest", "--execute"]
        result = run(bootstrap_servers, *words)
        assert (result.exit_code, result.stderr.splitlines()[1:]) == (
            1,
            [f"ottla: share group '{share_group}' has members: stop them, then reset its offsets"],
        )


def test_delete(bootstrap_servers: str, share_group: str, topic: str) -> None:
    words = ["--delete-offsets", "--group", share_group, "--topic", topic]
    assert output(bootstrap_servers, *words) == f"\nTOPIC STATUS\n{topic} Successful\n"
    again = run(bootstrap_servers, *words)
    assert again.exit_code == 1
    assert "There is no offset information to delete." in again.stdout
    described = output(bootstrap_servers, "--describe", "--group", share_group)
    assert described == f"\nShare group '{share_group}' has no offset information.\n"
    assert output(bootstrap_servers, "--delete", "--group", share_group) == (
        f"Deletion of requested share groups ('{share_group}') was successful.\n"
    )
    result = run(bootstrap_servers, "--delete", "--group", share_group)
    lines = [f"ottla: not deleted: '{share_group}' is not a share group"]
    assert (result.exit_code, result.stderr.splitlines()[1:]) == (1, lines)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "specify exactly one of --list, --describe, --delete, --reset-offsets, --delete-offsets"),
        (["--list", "--delete"], "exactly one of"),
        (["--describe"], "--describe requires either --group or --all-groups"),
        (["--describe", "--group", "g", "--members", "--offsets"], "one of --offsets, --members, --state"),
        (["--reset-offsets", "--group", "g", "--topic", "t", "--to-latest"], "either --dry-run or --execute"),
        (
            ["--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--dry-run", "--execute", "--export"],
            "--dry-run or --execute, not both",
        ),
        (["--reset-offsets", "--group", "g", "--to-latest", "--execute"], "one of --topic, --all-topics, --from-file"),
        (
            ["--reset-offsets", "--group", "g", "--topic", "t", "--all-topics", "--to-latest", "--execute"],
            "exactly one of --topic, --all-topics, --from-file",
        ),
        (["--reset-offsets", "--group", "g", "--topic", "t", "--execute"], "exactly one of --to-earliest"),
        (["--delete-offsets", "--group", "g"], "at least one --topic"),
        (["--reset-offsets", "--group", "g", "--topic", "t:x", "--to-latest", "--dry-run"], "partitions are numbers"),
        (["--reset-offsets", "--group", "g", "--topic", "t", "--to-datetime", "now", "--dry-run"], "YYYY-MM-DDTHH"),
        (["--list", "--state", "Odd"], "share groups are Empty, Stable or Dead"),
        (
            ["--reset-offsets", "--all-groups", "--topic", "t", "--to-latest", "--execute"],
            "requires exactly one --group",
        ),
        (["--list", "--group", "g"], "--group can only be used with --describe and --delete and"),
        (["--describe", "--group", "g", "--topic", "t"], "--topic can only be used with --reset-offsets and"),
    ],
)
def test_wrong_usage(bootstrap_servers: str, words: list[str], why: str) -> None:
    result = run(bootstrap_servers, *words)
    assert result.exit_code == 2
    assert why in result.stderr


def test_failures_are_one_line(bootstrap_servers: str, tmp_path: Path) -> None:
    result = run(bootstrap_servers, "--describe", "--group", "no-such-group")
    assert (result.exit_code, result.stderr) == (
        1,
        "ottla: group no-such-group: GROUP_ID_NOT_FOUND: Group no-such-group not found.\n",
    )
    words = ["--reset-offsets", "--group", "g", "--to-latest", "--execute"]
    absent = run(bootstrap_servers, *words, "--topic", "no-such-topic")
    assert (absent.exit_code, absent.stderr.splitlines()[1:]) == (1, ["ottla: topic no-such-topic does not exist"])
    bad = tmp_path / "bad.csv"
    bad.write_text("a,b\n", encoding="utf-8")
    file = run(bootstrap_servers, "--reset-offsets", "--group", "g", "--from-file", str(bad), "--execute")
    assert file.stderr.splitlines()[1:] == [f"ottla: {bad}, line 1: a line must be TOPIC,PARTITION,OFFSET"]
    nobody = CliRunner().invoke(
        main, ["share-groups", "--bootstrap-server", "127.0.0.1:1", "--list", "--timeout", "300"]
    )
    assert nobody.exit_code == 1
    assert nobody.stderr.count("\n") == 1
    assert "127.0.0.1:1" in nobody.stderr
