"""Every command in README and docs/ works as it stands there, but for the port: examples run on a free one."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.cli.main import main
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.streams.play import Play, info, subtopology
from tests.conformance.streams.test_other_apis import commit
from tests.conformance.transactions import TransactionalProducer
from tests.interop.apache_kafka import SCRIPT, skip_without
from tests.unit.metadata.kraft_directory import lay_out, topic

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def serve_commands() -> list[str]:
    lines = (line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines())
    commands = {line.partition("#")[0].strip() for line in lines if re.match(r"    (\w+=\S+ )*ottla serve", line)}
    return sorted(command for command in commands if "--cluster" not in command)  # those are in test_cluster.py


def storage_commands() -> list[str]:
    """In the order of the page: a later one may need what an earlier one did."""
    text = (ROOT / "docs" / "storage.md").read_text(encoding="utf-8")
    return [line.partition("#")[0].strip() for line in text.splitlines() if line.startswith("    ottla storage ")]


def operators_commands() -> list[str]:
    """Those of docs/serving.md beside `ottla serve`, in the order of the page."""
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if re.match(r" +(echo|ottla (?!serve)[a-z-]+)( |$)", line)]


KAFKA_TOOLS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-features.sh": "org.apache.kafka.tools.FeatureCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}


def kafka_commands(page: str) -> list[str]:
    """In the order of the page, as with `storage_commands`."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.startswith("    kafka-")]


def run_kafkas_tools(page: str, broker: EmbeddedBroker) -> dict[str, str]:
    """Run what the page says; by what stands behind the broker's address, what was printed."""
    outputs: dict[str, str] = {}
    for command in kafka_commands(page):
        name, *words = shlex.split(command.replace("127.0.0.1:9092", broker.bootstrap_servers))
        tool = [str(SCRIPT), "tool", KAFKA_TOOLS[name], *words]
        done = subprocess.run(tool, capture_output=True, text=True, timeout=60, check=False)
        outputs[command.partition("9092 ")[2]] = done.stdout
        assert done.returncode == 0, done.stdout + done.stderr
    return outputs


def python_blocks() -> list[tuple[str, str]]:
    blocks = []
    for page in PAGES:
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)):
            blocks.append((f"{page.stem}-{number}", block))
    return blocks


def test_several_brokers_as_the_docs_say(tmp_path: Path) -> None:
    (command,) = (command for command in serve_commands() if "--brokers" in command)
    words = [sys.executable, "-m", "ottla", *shlex.split(command)[1:], "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(words, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
    finally:
        process.send_signal(signal.SIGTERM)
        output, log = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, ""), log
    pattern = r"ottla is listening on PLAINTEXT://127\.0\.0\.1:\d+ \(node (\d), cluster \S+\)\n"
    assert {matched and matched[1] for matched in (re.fullmatch(pattern, line) for line in lines)} == {"1", "2", "3"}
    assert {path.name for path in (tmp_path / "cluster").glob("broker-*")} == {"broker-1", "broker-2", "broker-3"}
    assert all(re.match(r"\[[123]\] [-\d]+ [:\d]+,\d{3} INFO ", line) for line in log.splitlines()), log


@pytest.mark.parametrize("command", [command for command in serve_commands() if "--brokers" not in command])
def test_serve_as_the_docs_say(command: str, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("log.segment.bytes=1048576\n", encoding="utf-8")
    words = shlex.split(command)
    environment = dict(os.environ)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    words[:1] = [sys.executable, "-m", "ottla"]
    if "--listen" in words:
        words[words.index("--listen") + 1] = "127.0.0.1:0"
    else:
        words += ["--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ottla is listening on PLAINTEXT://127.0.0.1:")
        if "--metrics" in words:
            assert process.stdout.readline() == "serving metrics at http://127.0.0.1:9464/metrics\n"
    finally:
        process.send_signal(signal.SIGTERM)
        output, log = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, "")
    levels = [re.match(r"[-\d]+ [:\d]+,\d{3} ([A-Z]+) ", line) for line in log.splitlines()]
    assert {level and level[1] for level in levels} == {"INFO"}, log
    assert re.search(
        r"INFO Ottla \S+ started in \d+ ms on .*: node .*\n.*INFO stopping\n.*INFO stopped in \d+ ms\n$", log
    ), log


def test_checks_of_a_broker_as_the_docs_say(tmp_path: Path) -> None:
    """Those of docs/serving.md: they succeed with a broker, say why not in one line without one, and name what is offline."""
    environment = on_path(tmp_path)
    commands = operators_commands()
    checks = [command for command in commands if "--bootstrap-server" in command and "--command-config" in command]
    assert (len(checks), len(commands)) == (4, 8)
    configs = {"log.dirs": f"{tmp_path}/a,{tmp_path}/b"}

    def run(command: str, address: str) -> subprocess.CompletedProcess[str]:
        words = ["sh", "-c", command.replace("127.0.0.1:9092", address)]
        return subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    with EmbeddedBroker(configs, data_dir=tmp_path / "a") as broker:
        address = broker.bootstrap_servers
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic("flights", 4)]).check()
        for command in commands:
            done = run(command, address)
            assert done.returncode == 0, (command, done.stderr)
            assert command not in checks or done.stderr == "", command
            if "--unavailable-partitions" in command:
                assert done.stdout == ""
    for command in checks[:2]:
        done = run(command, address)
        assert (done.returncode, done.stdout) == (1, ""), command
        assert f"no broker answered within 3000 ms: {address}" in done.stderr.splitlines()[-1]
    (tmp_path / "b").rename(tmp_path / "gone")
    (tmp_path / "b").write_text("not a directory", encoding="utf-8")
    with EmbeddedBroker(configs, data_dir=tmp_path / "a") as broker:
        results = {command: run(command, broker.bootstrap_servers) for command in checks}
    assert {done.returncode for done in results.values()} == {0}
    (unavailable,) = [done.stdout for command, done in results.items() if "--unavailable-partitions" in command]
    assert len(unavailable.splitlines()) == 2
    (directories,) = [done.stdout for command, done in results.items() if "log-dirs" in command]
    errors = {entry["logDir"]: entry["error"] for entry in json.loads(directories)["brokers"][0]["logDirs"]}
    assert errors[f"{tmp_path}/a"] is None
    assert "KAFKA_STORAGE_ERROR" in errors[f"{tmp_path}/b"]


def test_storage_as_the_docs_say(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "configured"):
        lay_out(directory / "kafka-data", topic("flights", bytes(range(16)), 1))
    config = "node.id=1\nprocess.roles=broker,controller\nlog.dirs=configured/kafka-data\n"
    (tmp_path / "server.properties").write_text(config, encoding="utf-8")
    commands = storage_commands()
    assert len(commands) > 2
    for command in commands:
        words = [sys.executable, "-m", "ottla", *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, ""), command
        assert "flights" in done.stdout or "import" not in words
    for directory in (tmp_path, tmp_path / "configured"):
        assert (directory / "kafka-data" / "metadata.db").exists()


def test_cordons_as_the_docs_say() -> None:
    text = (ROOT / "docs" / "storage.md").read_text(encoding="utf-8")
    commands = [line.strip() for line in text.splitlines() if line.startswith("    ottla configs ")]
    shown = []
    with EmbeddedBroker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for command in commands:
            _, *words = shlex.split(command.replace("127.0.0.1:9092", broker.bootstrap_servers))
            main(words, standalone_mode=False)
            shown.append([row.is_cordoned for rows in admin.describe_log_dirs([1]).values() for row in rows.values()])
    assert shown == [[True], [False]]


def test_a_backup_as_the_docs_say(tmp_path: Path) -> None:
    """The commands of docs/storage.md, of a broker that runs; what was acknowledged before is on the copy."""
    commands = [command for command in storage_commands() if " backup " in command]
    assert len(commands) == 2
    with EmbeddedBroker(data_dir=tmp_path / "ottla-data") as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.produce_many("flights", [str(number) for number in range(1000)])
        for command in commands:
            words = [sys.executable, "-m", "ottla", *shlex.split(command)[1:]]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stderr) == (0, ""), command
            name = shlex.split(command)[shlex.split(command).index("--to") + 1]
            assert f"ottla serve --data-dir {name}" in done.stdout
            with (
                EmbeddedBroker(data_dir=tmp_path / name) as copy,
                Consumer(bootstrap_servers=copy.bootstrap_servers) as consumer,
            ):
                consumer.assign([TopicPartition("flights", 0)])
                consumer.seek_to_beginning()
                records = [record for _, record in zip(range(1000), consumer, strict=False)]
                assert [record.value for record in records] == [str(number).encode() for number in range(1000)]


def client_commands() -> list[str]:
    """In the order of the page; files that commands read are made by the lines before them."""
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    first = r"    (OTTLA_BOOTSTRAP_SERVERS=\S+ )?(ottla|echo|printf|mkdir) "
    return [line.strip() for line in text.splitlines() if re.match(first, line)]


def on_path(directory: Path) -> dict[str, str]:
    """An environment in which `ottla` is the command of this interpreter."""
    ottla = directory / "bin" / "ottla"
    ottla.parent.mkdir()
    ottla.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla "$@"\n', encoding="utf-8")
    ottla.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{ottla.parent}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(directory / "home"),
    }


def test_commands_as_the_docs_say(tmp_path: Path) -> None:
    """One broker through the whole page, with a transaction that hangs. Consumers print what the page says they read."""
    environment = on_path(tmp_path)
    consoles = 0
    configs = {"transaction.partition.verification.enable": "false"}
    commands = client_commands()
    assert len(commands) > 40
    with EmbeddedBroker(configs, data_dir=tmp_path / "ottla-data") as broker:
        wire = Wire(broker.address, is_kafka=False)
        producer = TransactionalProducer(wire, transactional_id="payments")
        hours_ago = int(time.time() * 1000) - 3 * 3_600_000
        producer.produce(TopicFactory(wire)(name="debits"), version=11, timestamp=hours_ago)
        wire.close()
        for command in commands:
            words = ["sh", "-c", command.replace("127.0.0.1:9092", broker.bootstrap_servers)]
            done = subprocess.run(
                words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            if "OffsetsMessageFormatter" in command:
                consoles += 1
                assert '"group":"board","topic":"flights"' in done.stdout, "the command ended before it had read"
            elif re.search(r"ottla console-(share-)?consumer ", command):
                consoles += 1
                assert sorted(done.stdout.splitlines()) == ["AA 1", "DL 3", "UA 7"], command
    assert consoles == 3


def test_every_command_has_an_example() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for name in main.list_commands(click.Context(main)):
        assert name in page, name


@pytest.mark.timeout(240)
def test_kafkas_tools_as_the_docs_say(request: pytest.FixtureRequest) -> None:
    skip_without("kafka-tools-4.3.1", request)
    (example,) = [block for name, block in python_blocks() if name == "groups-0"]
    with EmbeddedBroker() as broker:
        code = example.replace("127.0.0.1:9092", broker.bootstrap_servers)
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        outputs = run_kafkas_tools("groups.md", broker)
    answers = list(outputs.values())
    assert answers[0].split() == ["dashboard"]
    assert ["dashboard", "readings", "0", "4", "10", "6"] in [line.split()[:6] for line in answers[1].splitlines()]
    assert "Empty" in answers[2]
    assert ["dashboard", "readings", "0", "0"] in [line.split() for line in answers[3].splitlines()]
    assert "Completed updating config for group dashboard" in answers[4]
    assert '"group":"dashboard","topic":"readings"' in answers[5]
    assert "Deletion of requested consumer groups ('dashboard') was successful" in answers[6]


@pytest.mark.timeout(240)
def test_kafkas_tools_for_transactions_as_the_docs_say(request: pytest.FixtureRequest) -> None:
    """One broker through the whole page, with a transaction that hangs."""
    skip_without("kafka-tools-4.3.1", request)
    with EmbeddedBroker({"transaction.partition.verification.enable": "false"}) as broker:
        wire = Wire(broker.address, is_kafka=False)
        debits = TopicFactory(wire)(name="debits")
        producer = TransactionalProducer(wire, transactional_id="payments")
        hours_ago = int(time.time() * 1000) - 3 * 3_600_000
        producer.produce(debits, version=11, timestamp=hours_ago)  # never added to the transaction: it hangs
        outputs = run_kafkas_tools("transactions.md", broker)
        wire.close()
    assert "transaction.version" in outputs["describe"]
    assert "payments" in outputs["list"]
    assert "Empty" in outputs["describe --transactional-id payments"]
    assert str(producer.producer_id) in outputs["find-hanging --broker-id 1"]


@pytest.mark.timeout(240)
def test_share_groups_as_the_docs_say(tmp_path: Path) -> None:
    """The commands of the page in their order, on what its Python example leaves behind."""
    (example,) = [block for name, block in python_blocks() if name.startswith("python-") and '"workers"' in block]
    text = (ROOT / "docs" / "share-groups.md").read_text(encoding="utf-8")
    commands = [line.strip() for line in text.splitlines() if line.startswith("    ottla ")]
    assert len(commands) > 5
    outputs = {}
    with EmbeddedBroker() as broker:
        code = example.replace("127.0.0.1:9092", broker.bootstrap_servers)
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)
        for command in commands:
            words, _, file = command.replace("127.0.0.1:9092", broker.bootstrap_servers).partition(" > ")
            run = [sys.executable, "-m", "ottla", *shlex.split(words)[1:]]
            done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, (command, done.stderr)
            outputs[command] = done.stdout
            if file:
                (tmp_path / file).write_text(done.stdout, encoding="utf-8")
    answers = list(outputs.values())
    assert ["workers", "Empty"] in [line.split() for line in answers[0].splitlines()]
    assert ["workers", "jobs", "0", "0", "0"] in [
        [*line.split()[:3], "0", line.split()[-1]] for line in answers[1].splitlines() if line
    ]
    assert ["workers", "jobs", "0", "0"] in [line.split() for line in answers[3].splitlines()]
    assert (tmp_path / "plan.csv").read_text(encoding="utf-8") == "jobs,0,0\n"
    assert answers[6] == "job 0\njob 1\njob 2\n"


@pytest.mark.timeout(240)
def test_streams_groups_as_the_docs_say(tmp_path: Path) -> None:
    """The commands of the page in their order, on an application with a member until its offsets are reset."""
    text = (ROOT / "docs" / "streams-groups.md").read_text(encoding="utf-8")
    commands = [line.strip() for line in text.splitlines() if line.startswith("    ottla ")]
    assert len(commands) > 8
    outputs: dict[str, str] = {}
    with EmbeddedBroker({"group.streams.initial.rebalance.delay.ms": "0"}) as broker:
        wire = Wire(broker.address, is_kafka=False)
        TopicFactory(wire)(2, name="lines")
        play = Play(wire, TopicFactory(wire))
        play.group_id = "counts"
        play.topology = [subtopology(sources=["lines"], changelogs=[info("counts-words-changelog")])]
        play.enter("A")
        play.settle("A", lambda answer: not answer.status)
        assert commit(play, "A", play.epochs["A"], 0, 1) == "NONE"
        for command in commands:
            if "--reset-offsets" in command and not any("--reset-offsets" in before for before in outputs):
                play.quit("A")
            words = command.replace("127.0.0.1:9092", broker.bootstrap_servers)
            run = [sys.executable, "-m", "ottla", *shlex.split(words)[1:]]
            done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, (command, done.stderr)
            outputs[command] = done.stdout
        wire.close()
    answers = list(outputs.values())
    assert ["counts", "Stable"] in [line.split() for line in answers[1].splitlines()]
    assert ["counts", "lines", "1", "-5"] in [line.split() for line in answers[2].splitlines()]
    assert "ACTIVE: 0:[0,1];" in answers[3]
    assert ["counts", "lines", "0", "0"] in [line.split() for line in answers[6].splitlines()]
    assert answers[8] == (
        "Deletion of requested streams groups ('counts') was successful.\n"
        "Deletion of associated internal topics of the streams groups ('counts') was successful.\n"
    )


def plain_python(page: Path) -> list[str]:
    """The Python of a page that needs no Spark; tests/spark runs the rest, in its one session, test_sql.py that of sql.md, and
    test_security.py what needs a cloud."""
    blocks = [block for name, block in python_blocks() if name.rpartition("-")[0] == page.stem]
    return (
        []
        if page.stem in {"spark", "pipelines", "sql"}
        else [block for block in blocks if "spark" not in block and "_tokens.py" not in block]
    )


@pytest.fixture(scope="module")
def broker_of_all_pages() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", [page for page in PAGES if plain_python(page)], ids=lambda page: page.stem)
def test_python_examples_run_and_run_again(page: Path, broker_of_all_pages: EmbeddedBroker) -> None:
    """From top to bottom, twice, on a broker on which other pages were followed, too."""
    for block in plain_python(page) * 2:
        code = block.replace("127.0.0.1:9092", broker_of_all_pages.bootstrap_servers)
        # Python 3.12 warns of os.fork() in a process with threads.
        words = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", code]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, ""), block


def test_the_errors_of_the_page_about_processes_are_printed(broker_of_all_pages: EmbeddedBroker) -> None:
    (block,) = [block for block in plain_python(ROOT / "docs" / "python.md") if "os.fork()" in block]
    code = block.replace("127.0.0.1:9092", broker_of_all_pages.bootstrap_servers)
    words = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    shown = re.findall(r"# (this Producer belongs .*): \.\.\.", block)
    assert [re.sub(r"\d+", "N", line) for line in shown] == [re.sub(r"\d+", "N", done.stdout.partition(": create")[0])]


def test_targets_of_links_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
