"""`ottla dump-log`: what it says of the files of a broker that was stopped."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla import Admin, NewTopic, TopicPartition
from ottla.cli.main import main
from ottla.cli.record_json import metadata
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.share_members import initialize, share_group, write
from tests.conformance.transactions import TransactionalProducer


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["dump-log", *words])


def said(*words: str) -> list[str]:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two transactions, a committed offset, a share partition; the broker is stopped."""
    directory = tmp_path_factory.mktemp("dump") / "data"
    with EmbeddedBroker(data_dir=directory) as broker:
        wire = Wire(broker.address, is_kafka=False)
        topic = TopicFactory(wire)(name="t", partitions=1)
        producer = TransactionalProducer(wire, transactional_id="payments")
        for commit in (True, False):
            producer.add(topic)
            producer.produce(topic, count=2)
            producer.end(commit=commit)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("empty", 1)]).check()
            admin.alter_consumer_group_offsets("dashboard", {TopicPartition("t", 0): 3}).check()
        shared = share_group(wire)
        initialize(wire, shared, topic.id, state_epoch=3, start_offset=5)
        assert write(wire, shared, topic.id, [(5, 6, 2, 1)], state_epoch=3) == ("NONE", None)
        wire.close()
    return directory


def log_of(data: Path, topic: str) -> str:
    """The log of the partition that has most in it."""
    return str(max(data.glob(f"{topic}-*/*.log"), key=lambda path: path.stat().st_size))


def test_batches_and_records(data: Path) -> None:
    path = log_of(data, "t")
    lines = said("--files", path)
    assert lines[:2] == [f"Dumping {path}", "Log starting offset: 0"]
    assert lines[2].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 0 lastSequence: 1 producerId: 0 producerEpoch: 0 "
        "partitionLeaderEpoch: 0 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
    )
    assert lines[2].endswith(" isvalid: true")
    assert len(lines) == 6
    records = [line.strip() for line in said("--files", path, "--print-data-log") if line.startswith("| ")]
    assert records[0].endswith(" keySize: 2 valueSize: 2 sequence: 0 headerKeys: [] key: k0 payload: v0")
    assert records[2].endswith(
        " keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 0"
    )
    assert " endTxnMarker: ABORT " in records[5]
    short = said("--files", path, "--print-data-log", "--skip-record-metadata")
    assert [line for line in short if line.startswith("|")][:2] == ["| key: k0 payload: v0", "| key: k1 payload: v1"]
    (document,) = json.loads(run("--files", path, "--deep-iteration", "--json").stdout)
    assert [each["base_offset"] for each in document["entries"]] == [0, 2, 3, 5]
    assert document["entries"][0]["records"][1]["offset"] == 1
    assert len(said("--files", path, "--max-bytes", "200")) == 4


def test_indexes_and_producers(data: Path) -> None:
    log = Path(log_of(data, "t"))
    (snapshot,) = log.parent.glob("*.snapshot")
    files = [log.with_suffix(suffix) for suffix in (".index", ".timeindex", ".txnindex")]
    text = "\n".join(said("--files", ",".join(map(str, [*files, snapshot]))))
    assert "version: 0 producerId: 0 firstOffset: 3 lastOffset: 5 lastStableOffset: 6" in text
    assert "timestamp: " in text
    assert "producerId: 0 producerEpoch: " in text
    assert f"{files[1]} passed sanity check." in said("--files", str(files[1]), "--index-sanity-check")
    assert said("--files", str(files[1]), "--verify-index-only") == [f"Dumping {files[1]}"]


@pytest.mark.parametrize(
    ("topic", "option", "key", "payload"),
    [
        ("__consumer_offsets", "--offsets-decoder", '"group":"dashboard","topic":"t","partition":0', '"offset":3'),
        ("__transaction_state", "--transaction-log-decoder", '"transactionalId":"payments"', '"transactionStatus":'),
        ("__share_group_state", "--share-group-state-decoder", '"partition":0}}', '"firstOffset":5,"lastOffset":6'),
    ],
)
def test_internal_topics(data: Path, topic: str, option: str, key: str, payload: str) -> None:
    records = [line for line in said("--files", log_of(data, topic), option) if line.startswith("|")]
    assert any(key in line and " payload: {" in line and payload in line for line in records), records


def test_metadata_records() -> None:
    assert metadata(bytes.fromhex("010c00116d657461646174612e76657273696f6e002100")) == (
        '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version","featureLevel":33}}'
    )
    assert metadata(bytes.fromhex("01140000")) == '{"type":"NO_OP_RECORD","version":0,"data":{}}'
    assert metadata(b"").startswith("cannot be read")


def test_what_is_wrong(data: Path, tmp_path: Path) -> None:
    source = Path(log_of(data, "t"))
    damaged = bytearray(source.read_bytes())
    damaged[80] ^= 1
    (tmp_path / source.name).write_bytes(damaged + b"rest")
    result = run("--files", str(tmp_path / source.name))
    assert result.exit_code == 1
    assert "isvalid: false" in result.stdout
    assert f"Found 4 invalid bytes at the end of {source.name}" in result.stdout
    assert result.stderr.startswith("ottla: 2 things are not as they should be, the first: the batch at position 0")
    index = tmp_path / source.with_suffix(".timeindex").name
    index.write_bytes((5).to_bytes(8, "big") + (7).to_bytes(4, "big"))
    assert "The following indexed offsets are not found" in run("--files", str(index)).stdout
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    assert said("--files", str(tmp_path / "notes.txt"))[1] == f"Ignoring unknown file {tmp_path / 'notes.txt'}"
    absent = run("--files", str(tmp_path / "00000000000000000007.log"))
    assert (absent.exit_code, "No such file" in absent.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--offsets-decoder", "--transaction-log-decoder"], "at most one"),
        (["--key-decoder-class", "Odd"], "Odd is no decoder"),
    ],
)
def test_wrong_usage(words: list[str], why: str) -> None:
    result = run("--files", "x.log", *words)
    assert (result.exit_code, why in result.stderr) == (2, True)
