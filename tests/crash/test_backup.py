"""`ottla storage backup` of a broker that runs, and a broker that is started on the copy."""

import json
import subprocess
import sys
import threading
from pathlib import Path

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.testing.embedded import EmbeddedBroker

from .conftest import environment


def backup(source: Path, target: Path, *words: str, code: int = 0) -> str:
    """Standard output of the command, or its one line of an error."""
    command = [sys.executable, "-m", "ottla", "storage", "backup", str(source), "--to", str(target), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(), check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def values(broker: EmbeddedBroker, topic: str, partitions: int) -> list[int]:
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        places = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(places)
        consumer.seek_to_beginning(places)
        ends = consumer.end_offsets(places)
        read: list[int] = []
        while any(consumer.position(place) < ends[place] for place in places):
            record = consumer.poll(1)
            if record is not None:
                read.append(int(record.value or b"-1"))
    return read


def test_a_copy_of_a_running_broker_has_what_was_acknowledged_before(tmp_path: Path) -> None:
    configs = {"log.segment.bytes": "1048576", "log.flush.interval.messages": "1000"}
    over = threading.Event()
    with EmbeddedBroker(configs, data_dir=tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
            admin.create_topics([NewTopic("t", 3, config={"retention.ms": "-1"})]).check()
            for number in range(20_000):
                producer.produce("t", str(number).encode())
            assert producer.flush(30) == 0

            def go_on() -> None:
                number = 20_000
                while not over.is_set():
                    producer.produce("t", str(number).encode())
                    number += 1
                    if number % 1000 == 0:
                        producer.flush(10)

            thread = threading.Thread(target=go_on)
            thread.start()
            try:
                document = json.loads(backup(tmp_path / "data", tmp_path / "copy", "--json"))
            finally:
                over.set()
                thread.join()
    assert document["partitions"] == 3
    assert document["bytes"] > 20_000
    with EmbeddedBroker(data_dir=tmp_path / "copy") as copy:
        copied = values(copy, "t", 3)
        with Admin(bootstrap_servers=copy.bootstrap_servers) as admin:
            assert set(admin.list_topics(internal=False)) == {"t"}
    assert len(set(copied)) == len(copied)
    assert set(range(20_000)) <= set(copied)


def backup_while_the_metadata_changes(data: Path, copy: Path) -> str:
    """Standard error of a backup that meets another revision at each look."""
    revisions = "iter(range(100))"
    code = (
        "import ottla.cli.kafka.storage as storage; from ottla.cli.main import main; "
        f"copy, revisions = storage.copy_database, {revisions}; "
        "storage.copy_database = lambda source, target: (copy(source, target), next(revisions))[1]; main()"
    )
    words = ["storage", "backup", str(data), "--to", str(copy)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    return done.stderr


def test_a_failed_backup_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert "has no metadata.db" in backup(tmp_path / "data", tmp_path / "copy", code=1)
    with EmbeddedBroker(data_dir=tmp_path / "real"):
        pass
    changed = backup_while_the_metadata_changes(tmp_path / "real", tmp_path / "torn")
    assert "have changed during each of 3 copies" in changed
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").touch()
    assert (
        backup(tmp_path / "real", full, code=1)
        == f"ottla: {full} is not empty: name a directory that does not exist yet\n"
    )
