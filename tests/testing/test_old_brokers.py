"""Clients of brokers that are older than what they ask for: one error that names the release."""

import pytest

from ottla import Admin, KafkaError, Producer, TopicPartition
from ottla.client.errors import UnsupportedVersion
from ottla.client.producer.closed import ClosedBatch
from ottla.protocol.errors import UNSUPPORTED_COMPRESSION_TYPE
from ottla.protocol.releases import first_release, needs
from ottla.testing import Kafka
from tests.client.commands import Commands


@pytest.mark.parametrize("release", ["0.10.2", "0.11.0", "2.0"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_zstd_fails_at_once_on_brokers_without_it(kafka: Kafka, release: str, *, idempotent: bool) -> None:
    kafka.create_topic("orders")
    kafka.pin_versions(release)
    configs = {"compression.type": "zstd", "linger.ms": 0, "enable.idempotence": idempotent}
    with Producer({"bootstrap.servers": kafka.bootstrap_servers, **configs}) as producer:
        futures = [producer.send("orders", b"v" * 100) for _ in range(3)]
        assert producer.flush(5) == 0
        for future in futures:
            with pytest.raises(KafkaError, match=r"Kafka before 2\.1 has no zstd") as raised:
                future.result()
            assert raised.value.code == UNSUPPORTED_COMPRESSION_TYPE


def test_a_newer_broker_takes_zstd(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    kafka.pin_versions("2.1")
    with Producer(bootstrap_servers=kafka.bootstrap_servers, compression_type="zstd") as producer:
        assert producer.send("orders", b"v" * 100).result(10).offset == 0


@pytest.mark.replaces_code
@pytest.mark.parametrize("reason", [ValueError("odd"), MemoryError(), KafkaError("refused")])
def test_whatever_sealing_raises_fails_the_batch(
    kafka: Kafka, reason: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create_topic("orders", partitions=2)

    sealed = ClosedBatch.seal

    def fails(batch: ClosedBatch, version: int) -> bytes:
        if batch.partition.partition == 0:
            raise reason
        return sealed(batch, version)

    monkeypatch.setattr(ClosedBatch, "seal", fails)
    with Producer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=0) as producer:
        failing, other = producer.send("orders", b"a", partition=0), producer.send("orders", b"b", partition=1)
        assert producer.flush(5) == 0
        assert other.result().offset == 0
        with pytest.raises(KafkaError) as raised:
            failing.result()
    assert raised.value is reason or repr(reason) in str(raised.value)


def test_a_transaction_names_the_oldest_release(kafka: Kafka) -> None:
    kafka.pin_versions("0.10.2")
    with (
        Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="payments") as producer,
        pytest.raises(UnsupportedVersion, match=r"needs Kafka 0\.11\.0 or newer"),
    ):
        producer.init_transactions()


def test_admin_requests_name_the_oldest_release(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    kafka.pin_versions("0.10.2")
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        for call, release in (
            (lambda: admin.describe_metadata_quorum(), "2.7"),
            (lambda: admin.describe_acls(), "0.11.0"),
            (lambda: admin.describe_log_dirs([1]).check(), "1.0"),
            (lambda: admin.delete_records({TopicPartition("orders", 0): 1}).check(), "0.11.0"),
        ):
            with pytest.raises(UnsupportedVersion, match=f"needs Kafka {release} or newer"):
                call()


def test_releases_of_versions() -> None:
    assert first_release(0, 7) == "2.1"
    assert first_release(0, 0) == "0.8.0"
    assert first_release(0, 99) is None
    assert needs(0, 99) == ""


def test_topics_without_a_replication_factor_need_one_before_2_4(kafka: Kafka) -> None:
    kafka.pin_versions("2.3")
    commands = Commands(kafka.bootstrap_servers)
    message = commands.refused("topics", "--create", "--topic", "orders", "--partitions", "1")
    assert "--replication-factor" in message
    assert "2.4" in message
    commands.output("topics", "--create", "--topic", "orders", "--partitions", "1", "--replication-factor", "1")
