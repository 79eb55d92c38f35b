"""Values of metrics about logs and disks: sizes in percent of the retention (KIP-1257), I/O of the process (KIP-1291)."""

import re
from pathlib import Path

import pytest

from ottla import Admin, NewTopic, Producer
from tests.observability.conftest import Served, serve

IO = {"rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes", "cancelled_write_bytes"}


def gauge(text: str, name: str) -> int:
    """Return the value of a sample, which `name` names with its labels."""
    return int(float(text.partition(f"\n{name} ")[2].partition("\n")[0]))


def test_size_of_a_log_is_in_percent_of_its_retention(tmp_path: Path) -> None:
    served = serve(tmp_path)
    try:
        with Admin(bootstrap_servers=served.process.bootstrap_servers) as admin:
            admin.create_topics(
                [
                    NewTopic("half", 1, config={"retention.bytes": "100000"}),
                    NewTopic("above", 1, config={"retention.bytes": "1000"}),
                    NewTopic("compacted", 1, config={"retention.bytes": "100000", "cleanup.policy": "compact"}),
                    NewTopic("endless", 1, config={"retention.bytes": "-1"}),
                ]
            )
        with Producer(bootstrap_servers=served.process.bootstrap_servers) as producer:
            for topic in ("half", "above", "compacted", "endless"):
                producer.produce(topic, bytes(50_000), "key")
        text = served.get()
    finally:
        served.process.stop()
    percents = {
        topic: gauge(text, f'kafka_log_log_retentionsizeinpercent{{topic="{topic}",partition="0"}}')
        for topic in ("half", "above", "compacted", "endless")
    }
    assert percents == {"half": 50, "above": 5007, "compacted": 50, "endless": 0}


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system has no /proc/self/io")
def test_counters_of_the_process_io_are_exported_and_grow(served: Served) -> None:
    before, after = (
        {
            name: int(value)
            for name, value in re.findall(r"^kafka_server_kafkaserver_linux_disk_(\w+) (\d+)", text, re.M)
        }
        for text in (served.get(), served.get())
    )
    assert before.keys() == IO
    assert after["syscr"] > before["syscr"]
    assert after["rchar"] > before["rchar"]


def test_cordoned_log_directories_are_exported(tmp_path: Path) -> None:
    paths = [tmp_path, tmp_path / "two"]
    served = serve(tmp_path, "--data-dir", f"{paths[0]},{paths[1]}", "-o", f"cordoned.log.dirs={paths[1]}")
    try:
        text = served.get()
    finally:
        served.process.stop()
    name = "kafka_log_logmanager_logdirectorycordoned"
    assert [gauge(text, f'{name}{{logDirectory="{path}"}}') for path in paths] == [0, 1]
    assert gauge(text, "kafka_log_logmanager_cordonedlogdirectorycount") == 1
