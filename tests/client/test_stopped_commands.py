"""Commands that read or write records until they are stopped: what a signal or a closed pipe leaves, and the exit codes.

On both brokers. 128 + the number of the signal is also the exit code of Kafka's tools, as of all Java programs.
"""

import array
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla import LATEST, Admin, TopicPartition
from tests.conformance.members import wait_for

from .conftest import Produce, Read

LINES = 1000


class Case(NamedTuple):
    """A command; what it prints once it is at work; what must be true after its end."""

    words: str
    begun: str
    check: str


CASES = {
    "console-producer": Case("--topic {topic} --timeout 60000", "", "sent"),
    "console-consumer": Case("--topic {topic} --group {share_group}-c --from-beginning", "v0", "read"),
    "console-share-consumer": Case("--topic {topic} --group {share_group}", "v0", "shared"),
    "verifiable-producer": Case("--topic {topic} --throughput 50", "producer_send_success", "acknowledged"),
    "verifiable-consumer": Case("--topic {topic} --group-id {share_group}-c", "records_consumed", "read"),
    "verifiable-share-consumer": Case("--topic {topic} --group-id {share_group}", "records_consumed", "shared"),
    "producer-perf-test": Case(
        "--topic {topic} --num-records 1000000 --throughput 50 --record-size 9 --reporting-interval 50"
        " --transactional-id {share_group} --transaction-duration-ms 3000",
        "records sent",
        "committed",
    ),
    "consumer-perf-test": Case(
        "--topic {topic} --num-records 1000000 --group {share_group}-c --show-detailed-stats --reporting-interval 0",
        ", 5, ",
        "left",
    ),
    "share-consumer-perf-test": Case(
        "--topic {topic} --num-records 1000000 --group {share_group} --show-detailed-stats --reporting-interval 0",
        "for share consumer 1",
        "shared",
    ),
    "e2e-latency": Case("--topic {topic} --num-records 1000000 --producer-acks all --record-size 9", "0\t", "averaged"),
    "replica-verification": Case("--topics-include {topic} --report-interval-ms 100", "verification process", "quiet"),
}


class Ended(NamedTuple):
    """The output of a command that was stopped, and the clients to check its effects."""

    topic: str
    group: str
    output: str
    admin: Admin
    read: Read


def check_sent(ended: Ended) -> None:
    assert {record.value for record in ended.read(ended.topic, LINES)} == {b"%d" % number for number in range(LINES)}


def check_acknowledged(ended: Ended) -> None:
    match = re.search(r'"sent":(\d+),"acked":(\d+)', ended.output)
    assert match is not None
    assert match[1] == match[2] != "0"


def check_left(ended: Ended) -> None:
    """Each member has left: the next one need not wait until its session has ended."""
    assert ended.admin.describe_consumer_groups([f"{ended.group}-c"]).successes[f"{ended.group}-c"].members == ()


def check_read(ended: Ended) -> None:
    check_left(ended)
    committed = ended.admin.list_consumer_group_offsets([f"{ended.group}-c"]).successes[f"{ended.group}-c"]
    assert committed[TopicPartition(ended.topic, 0)].offset == 5


def check_shared(ended: Ended) -> None:
    assert ended.admin.describe_share_groups([ended.group]).successes[ended.group].members == ()
    offsets = ended.admin.list_share_group_offsets([ended.group]).successes[ended.group]
    assert offsets[TopicPartition(ended.topic, 0)].lag == 0


def check_committed(ended: Ended) -> None:
    """The open transaction is committed, and the summary counts what the partitions have."""
    summary = ended.output.splitlines()[-1]
    assert "99.9th" in summary
    partitions = {TopicPartition(ended.topic, index): LATEST for index in range(2)}
    stable = ended.admin.list_offsets(partitions, read_committed=True).successes
    assert {place: end.offset for place, end in ended.admin.list_offsets(partitions).successes.items()} == {
        place: end.offset for place, end in stable.items()
    }
    assert len(ended.read(ended.topic, 5 + int(summary.split()[0]), isolation_level="read_committed")) > 5


def check_averaged(ended: Ended) -> None:
    assert "Avg latency: " in ended.output


def check_quiet(ended: Ended) -> None:
    assert "verification process is started" in ended.output


def unread(descriptor: int) -> int:
    """Return the number of bytes in a pipe."""
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def command_of(name: str, bootstrap_servers: str, words: str, **fields: str) -> list[str]:
    """Return the command line of a case."""
    return [
        sys.executable,
        "-m",
        "ottla",
        name,
        "--bootstrap-server",
        bootstrap_servers,
        *words.format(**fields).split(),
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("name", CASES)
def test_a_signal_flushes_commits_and_leaves(
    name: str,
    number: signal.Signals,
    bootstrap_servers: str,
    admin: Admin,
    topic: str,
    share_group: str,
    produce: Produce,
    read: Read,
) -> None:
    case = CASES[name]
    if name != "console-producer":
        produce(topic, 5)
    command = command_of(name, bootstrap_servers, case.words, topic=topic, share_group=share_group)
    reading, writing = os.pipe()
    with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            os.write(writing, b"".join(b"%d\n" % line for line in range(LINES)))
            output = ""
            while case.begun and case.begun not in output:
                output += (line := process.stdout.readline())
                assert line, (output, process.stderr and process.stderr.read())
            if not case.begun:
                wait_for(lambda: unread(reading) == 0)
            process.send_signal(number)
            more, errors = process.communicate(timeout=30)
        finally:
            process.kill()
            os.close(reading)
            os.close(writing)
    assert process.returncode == 128 + number, errors
    assert re.sub(r"Processed a total of 5 messages\n", "", errors) == ""
    check: Callable[[Ended], None] = globals()[f"check_{case.check}"]
    check(Ended(topic, share_group, output + more, admin, read))


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_waits_for_a_broker_ends_at_once(number: signal.Signals) -> None:
    """A producer waits for metadata, a tool for its request: nothing can be flushed, and no traceback is printed."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for name, words in (("console-producer", "--topic t"), ("console-consumer", "--topic t"), ("topics", "--list")):
            with subprocess.Popen(
                command_of(name, address, words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process:
                assert process.stdin is not None
                process.stdin.write(b"line\n")
                process.stdin.flush()
                silent.settimeout(10)
                connection, _ = silent.accept()
                with connection:
                    time.sleep(0.3)
                    begun = time.monotonic()
                    process.send_signal(number)
                    if name == "console-producer":  # waits for the acknowledgement of the line that it has read
                        with pytest.raises(subprocess.TimeoutExpired):
                            process.wait(1)
                        process.send_signal(number)
                    _, errors = process.communicate(timeout=30)
            assert time.monotonic() - begun < 5, name
            assert process.returncode in (128 + number, -signal.SIGTERM if number == signal.SIGTERM else None), errors
            assert b"Traceback" not in errors
            assert b"Aborted" not in errors


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT end what a test starts, also where the tests run in the background of a script, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


PIPED = {
    "console-consumer": "--topic {topic} --from-beginning",
    "console-share-consumer": "--topic {topic} --group {share_group}",
    "verifiable-producer": "--topic {topic}",
    "verifiable-consumer": "--topic {topic} --group-id {share_group}-c --verbose",
    "verifiable-share-consumer": "--topic {topic} --group-id {share_group} --verbose",
    "producer-perf-test": "--topic {topic} --num-records 9999 --throughput 500 --record-size 9 --reporting-interval 1",
    "consumer-perf-test": "--topic {topic} --num-records 99999 --show-detailed-stats --reporting-interval 0",
    "share-consumer-perf-test": "--topic {topic} --num-records 99999 --group {share_group}"
    " --show-detailed-stats --reporting-interval 0",
    "e2e-latency": "--topic {topic} --num-records 9999 --producer-acks all --record-size 9",
    "replica-verification": "--topics-include {topic} --report-interval-ms 1",
    "top": "--json --interval 0.01",
    "configs": "--describe --all --entity-type topics",
    "get-offsets": "",
}


@pytest.mark.parametrize("name", PIPED)
def test_a_closed_pipe_ends_a_command_quietly(
    name: str, bootstrap_servers: str, topic: str, share_group: str, produce: Produce
) -> None:
    produce(topic, 5000)
    command = command_of(name, bootstrap_servers, PIPED[name], topic=topic, share_group=share_group)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert process.wait(30) == 141, errors
    assert re.sub(r"Processed a total of \d+ messages\n", "", errors) == ""


def test_a_closed_pipe_is_not_reported_as_file_damage(tmp_path: Path) -> None:
    name = "00000000000000000000.log"
    (tmp_path / name).write_bytes(b"")
    command = [sys.executable, "-m", "ottla", "dump-log", "--files", ",".join([name] * 3000)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (process.stderr.read(), process.wait(30)) == (b"", 141)
