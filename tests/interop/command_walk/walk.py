"""Random walk of command lines: Kafka's tools change one broker, Ottla's commands an equal one, and both must print the same.

The walk goes on with new brokers after a difference. Rows are compared in the order of their texts, as tools of Kafka print
some in the order of a hash table.
"""

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from ottla import Admin, ConfigChange, ConfigResource, NewTopic, Producer, ResourceType, TopicPartition
from ottla.cli.main import main
from ottla.testing import EmbeddedBroker

from . import applications, log_files
from .command_lines import COMMANDS, SHARE_GROUPS, CommandLine, draw
from .kafka_tools import KafkaTools, Outcome

CONFIGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    # The records are old, and no retention deletes them on one side before the other.
    "log.initial.task.delay.ms": "3600000",
}
_SENT_MS: Final = 1_700_000_000_000
_FAILURES: Final = re.compile(
    r"^\s*(Error|Exception|Failed|Can not|Could not|usage: )|\w*Exception: |\bError: "
    r"| '.*' doesn't exist and doesn't have | is invalid: |There is no active reassignment of partition",
    re.MULTILINE,
)
"""Kafka's tools often exit with 0 after one of these."""
_NO_FAILURE: Final = re.compile(r"^Error: Streams group '.*' has no active members", re.MULTILINE)
_LEFT_OUT: Final = re.compile(
    r"SLF4J|WARN|Warn: |The consumer rebalance protocol|Processed a total of"
    r"|Changing the cluster at|Deletion of requested .* (\(\)|'') |GROUP TOPIC PARTITION NEW-OFFSET$"
    # Share partitions are assigned to partitions by topic id, which differs; offsets of groups and of transactions depend on
    # the time.
    r"|__share_group_state|__consumer_offsets:|__transaction_state:"
    # So do the timestamps of lines. A random group may have been joined or not.
    r"|lines:|n1:|console-consumer-N"
    r"|(Error: )?Streams group '.*' has no active members"  # which Kafka's tool says with --state only
)
_DIFFERS: Final = (
    (re.compile(r"((?:Topic|Cluster )I[Dd]:) \S+"), r"\1 ID"),
    (re.compile(r"(^|configs? for |client-metric )[\w-]{22}(?=$|\.| are)", re.MULTILINE), r"\1GENERATED"),
    (re.compile(r'/[^",\s]+'), "PATH"),
    (re.compile(r"(CompleteCommit\s+\d+\s+\d{13})\s+\d+"), r"\1 AGE"),
    (re.compile(r"\b\d{13}\b"), "MS"),
    (re.compile(r"UNKNOWN 33"), "4.4-IV2"),  # the tools are of 4.3, and do not know the name of 4.4's level
    (re.compile(r"active\.Clearing"), "active.\nClearing"),
    (re.compile(r'("partition":"(?:n1|lines)-0","size":)\d+'), r"\1BYTES"),  # by times, and by how lines met in batches
    (re.compile(r"console-consumer-\d+"), "console-consumer-N"),
)


def normal(text: str, port: int) -> list[str]:
    """Return the lines that are compared."""
    for pattern, replacement in _DIFFERS:
        text = pattern.sub(replacement, text.replace(str(port), "PORT"))
    lines = []
    for line in text.splitlines():
        squeezed = re.sub(r"\s+", " ", line).strip()
        if squeezed.startswith('{"brokers"'):
            squeezed = " ".join(sorted(re.findall(r'{"partition":"(?!__)[^}]*}', squeezed)))
        squeezed = re.sub(r"(?<=Configs: )\S+$", lambda match: _sorted(match[0], ","), squeezed)
        squeezed = re.sub(r"\('.*'\)", lambda match: _sorted(match[0][1:-1], ", "), squeezed)
        if squeezed and not _LEFT_OUT.match(squeezed):
            lines.append(squeezed)
    return sorted(lines)


def _sorted(text: str, separator: str) -> str:
    return separator.join(sorted(text.split(separator)))


def has_failed(kafka: Outcome) -> bool:
    """Return whether a tool of Kafka has failed, by its exit code or its text."""
    return kafka.exit_code != 0 or _FAILURES.search(_NO_FAILURE.sub("", kafka.text)) is not None


def fill(broker: EmbeddedBroker) -> None:
    """Create topics with records, committed offsets, and a transaction."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t1", 3, 1), NewTopic("t2", 1, 1), NewTopic("lines", 1, 1)]).check()
        # Both brokers get the same batches, and so logs of one size, however long this process is held up.
        servers = broker.bootstrap_servers
        with Producer(bootstrap_servers=servers, transactional_id="tx1", linger_ms=60_000) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(12):
                producer.produce("t1", b"%d" % number, partition=number % 3, timestamp=_SENT_MS + 100 * number)
            producer.produce("t2", b"one", timestamp=_SENT_MS)
            producer.commit_transaction()
        first, second, other = TopicPartition("t1", 0), TopicPartition("t1", 1), TopicPartition("t2", 0)
        admin.alter_consumer_group_offsets("g1", {first: 1, second: 2, other: 1}).check()
        admin.alter_consumer_group_offsets("g2", {first: 3}).check()
        admin.alter_consumer_group_offsets("g3", {other: 0}).check()
        admin.alter_share_group_offsets("s1", {first: 0, second: 1}).check()
        admin.alter_share_group_offsets("s2", {other: 0}).check()
        earliest = [ConfigChange("share.auto.offset.reset", "earliest")]
        admin.incremental_alter_configs(
            {ConfigResource(ResourceType.GROUP, group): earliest for group in SHARE_GROUPS}
        ).check()
    applications.run(broker)


def _words(line: CommandLine, broker: EmbeddedBroker, file: Path) -> list[str]:
    data = str(data_directory(file))
    words = [str(file) if word == "{file}" else word.replace("{data}", data) for word in line.words]
    if line.command == "dump-log":
        return words
    where = ["--bootstrap-server", broker.bootstrap_servers]
    return [*words[:1], *where, *words[1:]] if line.command == "cluster" else [*where, *words]


def data_directory(file: Path) -> Path:
    """Return the directory of the files of partitions, beside the file of a command line."""
    return file.with_name("data")


def compare(line: CommandLine, tools: KafkaTools, brokers: Sequence[EmbeddedBroker], file: Path) -> list[str]:
    """Run a command line on both sides; return what differs, in lines."""
    file.write_text(line.file, encoding="utf-8")
    theirs, ours = brokers
    kafka = tools.run(line.command, _words(line, theirs, file), line.file)
    result = CliRunner().invoke(main, [line.command, *_words(line, ours, file)], input=line.file)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return [f"ottla ends with {result.exception!r}"]
    if "records were not sent" in result.output:
        return []  # Kafka's tool logs such errors, and works
    if "One or more topics are not part of the group" in kafka.text:
        return []  # it resets the others, docs/differences.md
    if has_failed(kafka) != (result.exit_code != 0):
        return [
            f"kafka {'fails' if has_failed(kafka) else 'works'}, ottla has exit code {result.exit_code}",
            *(f"kafka: {text}" for text in kafka.text.splitlines()[:5]),
            *(f"ottla: {text}" for text in result.output.splitlines()[-5:]),
        ]
    if has_failed(kafka):
        return []  # the texts of errors differ on purpose
    expected, printed = normal(kafka.text, theirs.address[1]), normal(result.output, ours.address[1])
    if expected == printed:
        return []
    return [
        *(f"kafka only: {text}" for text in expected if text not in printed),
        *(f"ottla only: {text}" for text in printed if text not in expected),
    ] or ["lines occur more often on one side"]


def run(
    seed: int, count: int, file: Path, tell: Callable[[str], None], commands: Sequence[str] = COMMANDS
) -> tuple[int, int]:
    """Run `count` command lines; return how many worked on both sides, and how many differed."""
    dice = random.Random(seed)
    done = worked = differed = 0
    tools = KafkaTools()
    log_files.write(data_directory(file))
    try:
        while done < count:
            with EmbeddedBroker(CONFIGS) as theirs, EmbeddedBroker(CONFIGS) as ours:
                fill(theirs)
                fill(ours)
                differs = False
                while done < count and not differs:
                    line = draw(dice, commands)
                    differences = compare(line, tools, (theirs, ours), file)
                    done += 1
                    differs = bool(differences)
                    differed += differs
                    worked += 1 - differs
                    if differs:
                        tell("\n    ".join([f"{done}: {line}", *differences]))
    finally:
        tools.close()
    return worked, differed
