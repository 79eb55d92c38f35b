"""The walk finds differences, and none between Kafka's tools and Ottla's commands."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.testing import EmbeddedBroker
from tests.interop.apache_kafka import skip_without

from . import log_files
from .command_lines import COMMANDS, CommandLine, draw
from .kafka_tools import TOOLS, KafkaTools, Outcome
from .walk import CONFIGS, compare, data_directory, fill, has_failed, normal, run

Brokers = Sequence[EmbeddedBroker]
LIST = CommandLine("topics", ["--list"])


class OttlaInsteadOfKafka(KafkaTools):
    """Ottla's commands in the place of Kafka's tools; `altered` changes their outcome."""

    def __init__(self, altered: Callable[[Outcome], Outcome] = lambda outcome: outcome) -> None:
        super().__init__()
        self._altered = altered

    def run(self, command: str, words: Sequence[str], stdin: str = "") -> Outcome:
        result = CliRunner().invoke(main, [command, *words], input=stdin)
        return self._altered(Outcome(result.exit_code, result.output))


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with ExitStack() as stack:
        both = [stack.enter_context(EmbeddedBroker(CONFIGS)) for _ in range(2)]
        for broker in both:
            fill(broker)
        yield both


def test_equal_commands_do_not_differ(brokers: Brokers, tmp_path: Path) -> None:
    dice = random.Random(1)
    tools, file = OttlaInsteadOfKafka(), tmp_path / "file"
    log_files.write(data_directory(file))
    quick = [command for command in COMMANDS if command != "console-consumer"]  # which waits a second each time
    drawn = [draw(dice, quick) for _ in range(150)]
    assert [(str(line), differences) for line in drawn if (differences := compare(line, tools, brokers, file))] == []


@pytest.mark.parametrize(
    ("altered", "expected"),
    [
        (lambda outcome: outcome._replace(text=outcome.text + "another\n"), ["kafka only: another"]),
        (lambda outcome: outcome._replace(text=outcome.text.replace("t2\n", "")), ["ottla only: t2"]),
        (lambda outcome: outcome._replace(text=outcome.text + "t1\n"), ["lines occur more often on one side"]),
        (lambda outcome: outcome._replace(exit_code=1), ["kafka fails, ottla has exit code 0"]),
    ],
)
def test_differences_are_seen(
    brokers: Brokers, tmp_path: Path, altered: Callable[[Outcome], Outcome], expected: list[str]
) -> None:
    differences = compare(LIST, OttlaInsteadOfKafka(altered), brokers, tmp_path / "file")
    assert differences[:1] == expected


def test_a_crash_is_seen(brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = OttlaInsteadOfKafka(lambda outcome: Outcome(0, "t1\nt2\n"))
    monkeypatch.setattr("ottla.cli.kafka.topics._list", lambda cluster, options: 1 // 0)
    assert "ZeroDivisionError" in compare(LIST, tools, brokers, tmp_path / "file")[0]


def test_failures_of_tools_that_exit_with_0() -> None:
    assert has_failed(Outcome(0, "\nError: Executing consumer group command failed"))
    assert has_failed(Outcome(0, "partition: t-0\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException: no"))
    assert not has_failed(Outcome(0, "Created topic errors.\n"))


def test_what_may_differ() -> None:
    assert normal("Topic: t\tTopicId: p7unjq7nRT-1YBzXVRQRUQ\tConfigs: b=1,a=2\n", 9092) == [
        "Topic: t TopicId: ID Configs: a=2,b=1"
    ]
    assert normal("g2  127.0.0.1:9092\nWARN: no\n\ng1  -\n", 9092) == ["g1 -", "g2 127.0.0.1:PORT"]


def test_every_command_is_drawn() -> None:
    dice = random.Random(1)
    assert {draw(dice).command for _ in range(300)} == set(COMMANDS) == set(TOOLS)


@pytest.mark.timeout(600)
def test_kafkas_tools_print_the_same(request: pytest.FixtureRequest, tmp_path: Path, dice_seed: int) -> None:
    skip_without("kafka-tools-4.3.1", request)
    differences: list[str] = []
    count = 300 * int(request.config.getoption("--soak"))
    equal, _ = run(dice_seed, count, tmp_path / "file", differences.append)
    assert differences == []
    assert equal == count
