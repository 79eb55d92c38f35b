"""Java clients while three brokers are restarted one after the other: no error reaches them, no record is lost or doubled."""

from pathlib import Path
from typing import Final

import pytest

from tests.crash.brokers import wait_until
from tests.crash.replicated_load import create
from tests.crash.rolling_cluster import RollingCluster, assert_handed_over, restart_all
from tests.etcd_server import running

from .apache_kafka import skip_without
from .java_processes import FOLDER, JavaProcess, rows, tool

ROUNDS: Final = 2
TOPIC: Final = "java"


@pytest.mark.timeout(300)
def test_java_clients_notice_no_rolling_restart(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    skip_without(FOLDER, request)
    config = tmp_path / "producer.properties"
    # The tool sets retries=0, which is not the default of the client.
    config.write_text("retries=2147483647\nenable.idempotence=true\n")
    with running(tmp_path / "etcd") as etcd:
        cluster = RollingCluster(tmp_path, etcd)
        tools: list[JavaProcess] = []
        try:
            create(cluster.servers, TOPIC)
            where = ["--bootstrap-server", cluster.servers, "--topic", TOPIC]
            producer = tool("VerifiableProducer", *where, "--throughput", "200", "--command-config", str(config))
            readers = [
                tool("VerifiableConsumer", *where, "--group-id", protocol, "--group-protocol", protocol, "--verbose",
                     "--reset-policy", "earliest")
                for protocol in ("classic", "consumer")
            ]  # fmt: skip
            tools += [producer, *readers]
            wait_until(lambda: all(reader.named("offsets_committed") for reader in readers), 60)

            def failures() -> list[object]:
                ended = [process.program for process in tools if process.has_ended]
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
                for partition, sent_rows in rows(sent).items():
                    assert read[partition] == sorted(sent_rows)
                    values = [int(value) for _, value in read[partition]]
                    assert values == sorted(set(values)), f"doubled or reordered in partition {partition}"
            assert_handed_over(cluster, ROUNDS)
        finally:
            for process in tools:
                process.close()
            cluster.close()
