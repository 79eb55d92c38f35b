"""Output of commands where it differs from Apache Kafka's tools on purpose; docs/differences.md lists all differences."""

import io
from pathlib import Path

from click.testing import CliRunner

from ottla import TopicPartition
from ottla.cli.kafka.formatters import DefaultMessageFormatter
from ottla.cli.kafka.reassignment import ReplicaPlacement, proposal
from ottla.cli.main import main
from ottla.records.record import Origin, Record


def test_a_proposal_begins_at_the_first_broker() -> None:
    """Kafka's tool begins at a random one."""
    current = [ReplicaPlacement(TopicPartition("t", number), (1, 2), ("any", "any")) for number in range(4)]
    racks = {3: None, 1: None, 2: None}
    proposed = proposal(current, racks, rack_aware=False)
    assert proposed[0].replicas[0] == 1
    assert proposed == proposal(list(current), dict(reversed(racks.items())), rack_aware=False)


def write_records(properties: dict[str, str], record: Record) -> bytes:
    out = io.BytesIO()
    DefaultMessageFormatter(properties).write(record, out)
    return out.getvalue()


def test_the_epoch_of_a_record_is_printed() -> None:
    """Kafka's tool prints NOT_PRESENT."""
    record = Record(7, 0, None, b"v", origin=Origin("t", 0, leader_epoch=5))
    assert write_records({"print.epoch": "true"}, record) == b"Epoch:5\tv\n"


def test_null_is_the_literal_whatever_the_deserializer() -> None:
    """Kafka's tool stops with an exception of the deserializer."""
    record = Record(7, 0, None, None)
    properties = {"value.deserializer": "IntegerDeserializer", "null.literal": "NIL"}
    assert write_records(properties, record) == b"NIL\n"


def test_a_failure_is_exit_code_1_and_wrong_usage_2(tmp_path: Path) -> None:
    """Kafka's tools often exit with 0."""
    quick = tmp_path / "client.properties"
    quick.write_text("default.api.timeout.ms=300\n", encoding="utf-8")
    nowhere = ["--bootstrap-server", "127.0.0.1:1", "--command-config", str(quick)]
    failed = CliRunner().invoke(main, ["topics", *nowhere, "--list"])
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert CliRunner().invoke(main, ["topics", *nowhere, "--no-such-option"]).exit_code == 2


def test_a_broker_listens_on_the_loopback_interface_by_default() -> None:
    """Apache Kafka listens on all interfaces."""
    assert "[default: 127.0.0.1:9092]" in " ".join(CliRunner().invoke(main, ["serve", "--help"]).stdout.split())
