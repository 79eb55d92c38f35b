"""Java clients while three brokers are restarted one after the other: no error reaches them, no record is lost or doubled."""

import json
import subprocess
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.crash.brokers import wait_until
from tests.crash.replicated_load import create
from tests.crash.rolling_cluster import RollingCluster, assert_handed_over, restart_all
from tests.etcd_server import running

from .apache_kafka import CACHE, lacking

FOLDER: Final = "kafka-tools-4.3.1"
TOOLS: Final = "org.apache.kafka.tools"
ROUNDS: Final = 2
TOPIC: Final = "java"


class Tool(threading.Thread):
    """Verifiable client of Apache Kafka; `events` are the lines that it has printed."""

    def __init__(self, name: str, *arguments: str) -> None:
        super().__init__(daemon=True)
        java = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{CACHE / FOLDER}/*", f"{TOOLS}.{name}"]
        self.events: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [*java, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.start()

    def run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the events of a kind."""
        return [event for event in list(self.events) if event["name"] == name]

    def end(self) -> None:
        """Let it end, with its last events."""
        self.process.terminate()
        self.process.wait(60)
        self.join(60)

    def close(self) -> None:
        """End it, with its pipe."""
        self.process.kill()
        self.process.wait()
        self.join(60)
        if self.process.stdout is not None:
            self.process.stdout.close()


def rows(events: Sequence[dict[str, Any]]) -> dict[int, list[tuple[int, str]]]:
    """Return offsets and values by partition, in their order."""
    by_partition: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for event in events:
        by_partition[event["partition"]].append((event["offset"], event["value"]))
    return by_partition


@pytest.mark.timeout(300)
def test_java_clients_notice_no_rolling_restart(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--interop"):
        pytest.skip("with --interop")
    if missing := lacking(FOLDER):
        pytest.skip(missing)
    config = tmp_path / "producer.properties"
    # The tool sets retries=0, which is not the default of the client.
    config.write_text("retries=2147483647\nenable.idempotence=true\n")
    with running(tmp_path / "etcd") as etcd:
        cluster = RollingCluster(tmp_path, etcd)
        tools: list[Tool] = []
        try:
            create(cluster.servers, TOPIC)
            where = ["--bootstrap-server", cluster.servers, "--topic", TOPIC]
            producer = Tool("VerifiableProducer", *where, "--throughput", "200", "--command-config", str(config))
            readers = [
                Tool("VerifiableConsumer", *where, "--group-id", protocol, "--group-protocol", protocol, "--verbose",
                     "--reset-policy", "earliest")
                for protocol in ("classic", "consumer")
            ]  # fmt: skip
            tools += [producer, *readers]
            wait_until(lambda: all(reader.named("offsets_committed") for reader in readers), 60)

            def failures() -> list[object]:
                ended = [tool.name for tool in tools if tool.process.poll() is not None]
                return [*ended, *producer.named("producer_send_error")]

            restart_all(cluster, failures, ROUNDS)
            producer.end()
            sent = producer.named("producer_send_success")
            assert producer.named("producer_send_error") == []
            for reader in readers:
                wait_until(lambda reader=reader: len(reader.named("record_data")) >= len(sent), 60)  # type: ignore[misc]
                reader.end()
                assert [event for event in reader.named("offsets_committed") if not event["success"]] == []
                read = rows(reader.named("record_data"))
                assert sum(map(len, read.values())) == len(sent)
                for partition, found in rows(sent).items():
                    assert read[partition] == sorted(found)
                    values = [int(value) for _, value in read[partition]]
                    assert values == sorted(set(values)), f"doubled or reordered in partition {partition}"
            assert_handed_over(cluster, ROUNDS)
        finally:
            for tool in tools:
                tool.close()
            cluster.close()
