"""`ottla streams-groups` and the admin client's description, on Ottla and on Apache Kafka: output and effects."""

import json
import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from ottla import Admin, TopicPartition
from ottla.cli.main import main
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.members import wait_for
from tests.conformance.streams.play import Play, info, subtopology
from tests.conformance.streams.test_other_apis import commit


def run(play: Play, *words: str) -> Result:
    host, port = play.wire.address
    return CliRunner().invoke(main, ["streams-groups", "--bootstrap-server", f"{host}:{port}", *words])


def output(play: Play, *words: str) -> str:
    """Run a command that succeeds, and return its output with single blanks and names replaced by their aliases."""
    result = run(play, *words)
    assert result.exit_code == 0, result.output
    text = re.sub(" +", " ", result.stdout)
    for name in sorted(play.aliases, key=len, reverse=True):
        text = text.replace(name, play.aliases[name])
    return text


@pytest.fixture
def play(bootstrap_servers: str) -> Iterator[Play]:
    """An application with a repartition and a changelog topic; A has all tasks, B waits for some of them."""
    host, _, port = bootstrap_servers.partition(":")
    wire = Wire((host, int(port)), is_kafka=True)
    play = Play(wire, TopicFactory(wire))
    through, store = f"{play.group_id}-words-repartition", f"{play.group_id}-counts-changelog"
    play.aliases |= {through: "words", store: "counts"}
    play.topology = [
        subtopology("0", sources=[play.topic("lines", 2)], sinks=[through]),
        subtopology("1", repartition=[info(through, factor=1)], changelogs=[info(store, factor=1)]),
    ]
    play.enter("A", user_endpoint=7001)
    wait_for(lambda: play.partitions(through) == 2 and play.partitions(store) == 2)
    play.settle("A", lambda answer: not answer.status)
    play.enter("B")
    yield play
    wire.close()


def leave(play: Play) -> None:
    play.quit("A")
    play.quit("B")


def test_list(play: Play) -> None:
    assert "g" in output(play, "--list").split()
    assert "\ng Reconciling\n" in output(play, "--list", "--state")
    assert "\ng Reconciling\n" in output(play, "--list", "--state", "reconciling, NotReady")
    assert "g Reconciling" not in output(play, "--list", "--state", "stable")
    assert play.group_id in json.loads(run(play, "--list", "--json").stdout)
    result = run(play, "--list", "--state", "weird")
    assert result.exit_code == 2
    assert "--state weird: streams groups are NotReady," in result.output


def test_list_a_group_that_is_not_ready(play: Play) -> None:
    leave(play)
    other = Play(play.wire, TopicFactory(play.wire))
    other.topology = [subtopology(sources=[other.name("missing")])]
    other.enter("A")
    assert "\ng NotReady\n" in output(other, "--list", "--state", "notready")


def test_describe_offsets(play: Play) -> None:
    assert commit(play, "A", play.epochs["A"], 1) == "NONE"
    assert output(play, "--describe", "--group", play.group_id) == (
        "\nGROUP TOPIC PARTITION OFFSET-LAG\ng words 0 0\ng words 1 0\ng lines 0 0\ng lines 1 -5\n"
    )
    assert output(play, "--describe", "--group", play.group_id, "--offsets", "--verbose") == (
        "\nGROUP TOPIC PARTITION CURRENT-OFFSET LEADER-EPOCH LOG-END-OFFSET OFFSET-LAG\n"
        "g words 0 - - 0 0\ng words 1 - - 0 0\ng lines 0 - - 0 0\ng lines 1 5 - 0 -5\n"
    )
    rows = json.loads(run(play, "--describe", "--group", play.group_id, "--json").stdout)
    assert rows[-1]["offset_lag"] == -5
    leave(play)
    result = run(play, "--describe", "--group", play.group_id)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"Streams group '{play.group_id}' has no active members." in result.stderr


def test_describe_members(play: Play) -> None:
    tasks = "ACTIVE: 0:[0,1]; 1:[0,1];"
    assert output(play, "--describe", "--group", play.group_id, "--members") == (
        f"\nGROUP MEMBER PROCESS CLIENT-ID ASSIGNMENTS\ng A process-A conformance {tasks}\ng B process-B conformance -\n"
    )
    assert output(play, "--describe", "--group", play.group_id, "--members", "--verbose") == (
        "\nGROUP TARGET-ASSIGNMENT-EPOCH TOPOLOGY-EPOCH MEMBER MEMBER-PROTOCOL MEMBER-EPOCH PROCESS CLIENT-ID ASSIGNMENTS\n"
        f"g 4 0 A streams 3 process-A conformance {tasks} TARGET-ACTIVE: 0:[0]; 1:[0];\n"
        "g 4 0 B streams 4 process-B conformance TARGET-ACTIVE: 0:[1]; 1:[1];\n"
    )


def test_describe_state(play: Play) -> None:
    state = output(play, "--describe", "--group", play.group_id, "--state")
    assert re.fullmatch(r"\nGROUP COORDINATOR \(ID\) STATE #MEMBERS\ng \S+:\d+ \(\d+\) Reconciling 2\n", state)
    state = output(play, "--describe", "--group", play.group_id, "--state", "--verbose")
    assert state.splitlines()[1] == "GROUP COORDINATOR (ID) STATE GROUP-EPOCH TARGET-ASSIGNMENT-EPOCH #MEMBERS"
    assert state.endswith(" Reconciling 4 4 2\n")
    result = run(play, "--describe", "--group", "nope")
    assert (result.exit_code, result.stderr) == (1, "ottla: group nope: GROUP_ID_NOT_FOUND: Group nope not found.\n")


def test_a_group_without_members(play: Play) -> None:
    leave(play)
    for selection in ([], ["--members"], ["--state"]):
        result = run(play, "--describe", "--group", play.group_id, *selection)
        assert (result.exit_code, result.stderr) == (0, f"\nStreams group '{play.group_id}' has no active members.\n")


def test_reset_offsets(play: Play) -> None:
    assert commit(play, "A", play.epochs["A"], 0, 1) == "NONE"
    words = ["--reset-offsets", "--group", play.group_id, "--to-earliest"]
    result = run(play, *words, "--all-input-topics", "--execute")
    assert result.exit_code == 1
    assert f"streams group '{play.group_id}' is Reconciling: stop its members" in result.stderr
    leave(play)
    other = Play(play.wire, TopicFactory(play.wire))
    other.topology = [subtopology("0", sources=[other.topic("lines", 1)])]
    other.enter("A")
    result = run(
        play, *words, "--group", other.group_id, "--all-input-topics", "--dry-run"
    )  # the other one has a member
    assert result.exit_code == 1
    assert f"streams group '{other.group_id}' is " in result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[2:]] == [play.group_id] * 2
    other.quit("A")
    plan = "\nGROUP TOPIC PARTITION NEW-OFFSET\ng lines 0 0\ng lines 1 0\n"
    assert output(play, *words, "--all-input-topics", "--dry-run") == plan
    (lines,) = play.topology[0].source_topics
    assert output(play, *words, "--input-topic", f"{lines}:0,1", "--execute") == plan
    result = run(play, *words, "--dry-run")
    assert result.exit_code == 2
    assert "exactly one of --input-topic, --all-input-topics, --from-file" in result.output


def test_reset_offsets_and_delete_internal_topics(play: Play) -> None:
    leave(play)
    (lines,) = play.topology[0].source_topics
    words = ["--reset-offsets", "--group", play.group_id, "--to-earliest", "--all-input-topics"]
    result = run(play, *words, "--execute", "--delete-internal-topic", lines)
    assert result.exit_code == 1
    assert f"topic {lines} is not an internal topic of group {play.group_id}" in result.stderr
    result = run(play, *words, "--dry-run", "--delete-all-internal-topics")
    assert result.exit_code == 2
    assert "--reset-offsets deletes internal topics with --execute only" in result.output
    names = {alias: name for name, alias in play.aliases.items()}
    output(play, *words, "--execute", "--delete-internal-topic", names["words"])
    wait_for(lambda: not play.partitions(names["words"]))
    assert play.partitions(names["counts"])
    output(play, *words, "--execute", "--delete-all-internal-topics")
    wait_for(lambda: not play.partitions(names["counts"]))
    assert play.partitions(lines) == 2


def test_delete_offsets(play: Play) -> None:
    (lines,) = play.topology[0].source_topics
    words = ["--delete-offsets", "--group", play.group_id, "--input-topic"]
    result = run(play, *words, lines)
    assert result.exit_code == 1
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in result.stdout
    leave(play)
    assert output(play, *words, lines) == (
        "Request succeeded for deleting offsets from group g.\n\n"
        "TOPIC PARTITION STATUS\nlines 0 Successful\nlines 1 Successful\n"
    )
    result = run(play, *words[:-1])
    assert result.exit_code == 2
    assert "requires one --group and at least one --input-topic or --all-input-topics" in result.output
    result = run(play, *words, "nowhere")
    assert result.exit_code == 1
    assert "Error: topic nowhere does not exist" in result.stdout


def test_delete_offsets_of_all_topics(play: Play) -> None:
    assert commit(play, "A", play.epochs["A"], 1) == "NONE"
    leave(play)
    words = ["--delete-offsets", "--group", play.group_id, "--all-input-topics"]
    assert output(play, *words) == (
        "Request succeeded for deleting offsets from group g.\n\nTOPIC PARTITION STATUS\nlines 1 Successful\n"
    )


def test_all_input_topics_are_those_that_the_application_reads(play: Play) -> None:
    words = next(name for name, alias in play.aliases.items() if alias == "words")
    assert commit(play, "A", play.epochs["A"], 1) == "NONE"
    assert commit(play, "A", play.epochs["A"], 0, topic=words) == "NONE"
    leave(play)
    group = ["--group", play.group_id, "--all-input-topics"]
    plan = "\nGROUP TOPIC PARTITION NEW-OFFSET\ng lines 1 0\n"
    assert output(play, "--reset-offsets", *group, "--to-earliest", "--dry-run") == plan
    assert "words" not in output(play, "--delete-offsets", *group)
    result = run(play, "--delete-offsets", "--group", "no-such-group", "--all-input-topics")
    assert result.exit_code == 1
    assert "GROUP_ID_NOT_FOUND" in result.stderr


def test_offsets_of_a_consumer_group_are_not_reset(play: Play, bootstrap_servers: str) -> None:
    (lines,) = play.topology[0].source_topics
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        group_id = f"{play.group_id}-consumers"
        admin.alter_consumer_group_offsets(group_id, {TopicPartition(lines, 0): 0}).check()
    result = run(play, "--reset-offsets", "--group", group_id, "--input-topic", lines, "--to-earliest", "--dry-run")
    assert result.exit_code == 1
    assert f"Group {group_id} is not a streams group." in result.stderr


def test_only_input_topics_are_reset(play: Play) -> None:
    leave(play)
    words = next(name for name, alias in play.aliases.items() if alias == "words")
    other = Play(play.wire, TopicFactory(play.wire))
    other.topology = [subtopology("0", sources=[other.topic("numbers", 1)])]
    other.enter("A")
    other.quit("A")
    (lines,), (numbers,) = play.topology[0].source_topics, other.topology[0].source_topics
    reset = ["--reset-offsets", "--to-earliest", "--dry-run"]
    for topic, group in ((words, play.group_id), (lines, other.group_id), ("nowhere", other.group_id)):
        result = run(play, *reset, "--group", group, "--input-topic", topic)
        assert result.exit_code == 1
        assert f"topic {topic} is not an input topic of {group}" in result.stderr
    result = run(play, *reset, "--group", play.group_id, "--group", other.group_id, "--input-topic", numbers)
    assert f"topic {numbers} is not an input topic of {play.group_id}" in result.stderr
    # Other groups of this broker have members: they are reported behind the plan.
    plan = run(play, *reset, "--all-groups", "--input-topic", lines, "--input-topic", numbers).stdout
    for group, topic, count in ((play.group_id, lines, 2), (other.group_id, numbers, 1)):
        rows = [line.split() for line in plan.splitlines() if line.startswith(group)]
        assert rows == [[group, topic, str(number), "0"] for number in range(count)]


@pytest.mark.parametrize("option", [["--dry-run"], ["--all-input-topics"], ["--delete-all-internal-topics"]])
def test_options_of_other_actions(play: Play, option: list[str]) -> None:
    result = run(play, "--describe", "--group", play.group_id, *option)
    assert result.exit_code == 2
    assert f"{option[0]} can only be used with " in result.output


def test_delete(play: Play) -> None:
    words = ["--delete", "--group", play.group_id]
    result = run(play, *words)
    assert result.exit_code == 1
    assert "NON_EMPTY_GROUP" in result.stderr
    leave(play)
    (lines,) = play.topology[0].source_topics
    result = run(play, *words, "--delete-internal-topic", lines)
    assert result.exit_code == 1
    assert f"topic {lines} is not an internal topic of group {play.group_id}" in result.stderr
    assert output(play, *words, "--delete-all-internal-topics") == (
        "Deletion of requested streams groups ('g') was successful.\n"
        "Deletion of associated internal topics of the streams groups ('g') was successful.\n"
    )
    names = [name for name, alias in play.aliases.items() if alias in ("words", "counts")]
    wait_for(lambda: not any(map(play.partitions, names)))
    assert play.partitions(lines) == 2
    plain = Play(play.wire, TopicFactory(play.wire))
    plain.topology = [subtopology("0", sources=[plain.topic("numbers", 1)])]
    plain.enter("A")
    plain.quit("A")
    assert output(plain, "--delete", "--group", plain.group_id, "--delete-all-internal-topics") == (
        "Deletion of requested streams groups ('g') was successful.\n"
    )
    result = run(play, *words)
    assert result.exit_code == 1
    assert f"'{play.group_id}' is not a streams group" in result.stderr


def test_the_admin_client_describes_a_group(play: Play, bootstrap_servers: str) -> None:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        group = admin.describe_streams_groups([play.group_id])[play.group_id]
        offsets = admin.list_consumer_group_offsets([play.group_id])[play.group_id]
    assert (group.state, group.group_epoch, group.assignment_epoch, group.topology_epoch) == ("Reconciling", 4, 4, 0)
    one, two = group.subtopologies
    assert [topic.partitions for topic in two.repartition_source_topics + two.state_changelog_topics] == [2, 2]
    assert one.repartition_sink_topics == tuple(topic.name for topic in two.repartition_source_topics)
    member = next(member for member in group.members if member.member_id == "A")
    assert member.assignment.active == (("0", 0), ("0", 1), ("1", 0), ("1", 1))
    assert member.target_assignment.active == (("0", 0), ("1", 0))
    assert (member.process_id, member.user_endpoint, member.member_epoch) == ("process-A", ("h", 7001), 3)
    assert offsets == {}
