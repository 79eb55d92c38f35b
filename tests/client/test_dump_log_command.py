"""`ottla dump-log`: what it says of the files of a broker that was stopped."""

import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ottla import Admin, NewTopic, TopicPartition
from ottla.cli.main import main
from ottla.cli.record_json import metadata
from ottla.protocol.codec import encode
from ottla.protocol.messages.remote_log_metadata_records import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
)
from ottla.protocol.schema import Message
from ottla.records.batch import build
from ottla.records.compression import compress
from ottla.records.legacy import decompress_message, for_old_client, messages
from ottla.records.record import Record
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.share_members import initialize, share_group, write
from tests.conformance.transactions import TransactionalProducer


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["dump-log", *words])


def output_lines(*words: str) -> list[str]:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


@pytest.mark.parametrize("name", ["x.log", "00000000000000000000.log", "x.index", "x.snapshot", "x"])
def test_a_file_that_does_not_exist_is_a_failure_in_one_line(tmp_path: Path, name: str) -> None:
    result = run("--files", str(tmp_path / name))
    assert (result.exit_code, result.stderr) == (
        1,
        f"ottla: cannot read {tmp_path / name}: No such file or directory\n",
    )


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
    lines = output_lines("--files", path)
    assert lines[:2] == [f"Dumping {path}", "Log starting offset: 0"]
    assert lines[2].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 0 lastSequence: 1 producerId: 0 producerEpoch: 0 "
        "partitionLeaderEpoch: 0 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
    )
    assert lines[2].endswith(" isvalid: true")
    assert len(lines) == 6
    records = [line.strip() for line in output_lines("--files", path, "--print-data-log") if line.startswith("| ")]
    assert records[0].endswith(" keySize: 2 valueSize: 2 sequence: 0 headerKeys: [] key: k0 payload: v0")
    assert records[2].endswith(
        " keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 0"
    )
    assert " endTxnMarker: ABORT " in records[5]
    short = output_lines("--files", path, "--print-data-log", "--skip-record-metadata")
    assert [line for line in short if line.startswith("|")][:2] == ["| key: k0 payload: v0", "| key: k1 payload: v1"]
    (document,) = json.loads(run("--files", path, "--deep-iteration", "--json").stdout)
    assert [entry["base_offset"] for entry in document["entries"]] == [0, 2, 3, 5]
    assert document["entries"][0]["records"][1]["offset"] == 1
    assert len(output_lines("--files", path, "--max-bytes", "200")) == 4


def test_indexes_and_producers(data: Path) -> None:
    log = Path(log_of(data, "t"))
    (snapshot,) = log.parent.glob("*.snapshot")
    files = [log.with_suffix(suffix) for suffix in (".index", ".timeindex", ".txnindex")]
    text = "\n".join(output_lines("--files", ",".join(map(str, [*files, snapshot]))))
    assert "version: 0 producerId: 0 firstOffset: 3 lastOffset: 5 lastStableOffset: 6" in text
    assert "timestamp: " in text
    assert "producerId: 0 producerEpoch: " in text
    assert f"{files[1]} passed sanity check." in output_lines("--files", str(files[1]), "--index-sanity-check")
    assert output_lines("--files", str(files[1]), "--verify-index-only") == [f"Dumping {files[1]}"]


@pytest.mark.parametrize(
    ("topic", "option", "key", "payload"),
    [
        ("__consumer_offsets", "--offsets-decoder", '"group":"dashboard","topic":"t","partition":0', '"offset":3'),
        ("__transaction_state", "--transaction-log-decoder", '"transactionalId":"payments"', '"transactionStatus":'),
        ("__share_group_state", "--share-group-state-decoder", '"partition":0}}', '"firstOffset":5,"lastOffset":6'),
    ],
)
def test_internal_topics(data: Path, topic: str, option: str, key: str, payload: str) -> None:
    records = [line for line in output_lines("--files", log_of(data, topic), option) if line.startswith("|")]
    assert any(key in line and " payload: {" in line and payload in line for line in records), records


def test_metadata_records() -> None:
    assert metadata(bytes.fromhex("010c00116d657461646174612e76657273696f6e002100"), 0) == (
        '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version","featureLevel":33}}'
    )
    assert metadata(bytes.fromhex("01140000"), 0) == '{"type":"NO_OP_RECORD","version":0,"data":{}}'
    assert metadata(b"", 7).startswith("Error at 7, skipping. ")


def test_records_of_another_topic_than_the_decoder_is_for(data: Path) -> None:
    """As Kafka's tool, but for the texts after "skipping."."""
    lines = output_lines("--files", log_of(data, "t"), "--transaction-log-decoder", "--skip-record-metadata")
    unknown = [f"| key: Unknown record type {0x6B30 + at % 2} at offset {at + at // 2}, skipping." for at in range(4)]
    assert [line for line in lines if line.startswith("|")] == unknown
    (malformed, *_) = output_lines(
        "--files", log_of(data, "__share_group_state"), "--offsets-decoder", "--skip-record-metadata"
    )[3:]
    assert malformed.startswith("| key: Error at offset 0, skipping. ")


def test_records_without_a_key_are_not_of_an_internal_topic(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(build([Record(0, 1, None, b"v")]))
    result = run("--files", str(log), "--offsets-decoder")
    assert (result.exit_code, result.stderr) == (
        1,
        "ottla: the record at offset 0 has no key: it is not of that topic\n",
    )


@pytest.mark.parametrize(
    ("decoder", "value", "shown"),
    [
        ("IntegerDecoder", bytes.fromhex("00000007"), "7"),
        ("IntegerDecoder", bytes.fromhex("00000007ff"), "7"),
        ("LongDecoder", bytes.fromhex("ffffffffffffffff00"), "-1"),
        ("IntegerDecoder", b"abc", "3 bytes are not 4"),
    ],
)
def test_decoders_show_records_and_take_the_first_bytes(tmp_path: Path, decoder: str, value: bytes, shown: str) -> None:
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(build([Record(0, 1, b"k", value)]))
    line = output_lines("--files", str(log), "--value-decoder-class", f"org.apache.kafka.tools.api.{decoder}")[-1]
    assert line.endswith(f" headerKeys: [] key: k payload: {shown}")


def test_records_without_anything_to_show_are_empty_lines(data: Path) -> None:
    lines = output_lines("--files", log_of(data, "t"), "--deep-iteration", "--skip-record-metadata")
    assert [line for line in lines if not line.startswith("baseOffset")][2:] == [""] * 6


def test_an_empty_index_is_empty_also_for_the_sanity_check(tmp_path: Path) -> None:
    index = tmp_path / f"{0:020d}.index"
    index.touch()
    assert output_lines("--files", str(index), "--index-sanity-check") == [f"Dumping {index}", f"{index} is empty."]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_older_formats(tmp_path: Path, magic: int) -> None:
    """As Kafka 0.8 to 0.10 wrote them: alone and packed; a batch of a younger broker behind them."""
    log = tmp_path / "00000000000000000010.log"
    old = b"".join(for_old_client(batch(10 + 2 * codec, codec), magic, 0, 1 << 20) for codec in range(4))
    log.write_bytes(old + batch(18, 0))
    lines = output_lines("--files", str(log))
    kind = "CreateTime" if magic else "NoTimestampType"
    starts = [line.split(" position: ")[0] for line in lines[2:]]
    assert starts[:5] == ["offset: 10", "offset: 11", "offset: 13", "offset: 15", "offset: 17"]
    assert starts[5].startswith("baseOffset: 18 ")
    time, size = (1011, 41) if magic else (-1, 33)
    middle = f" position: {size + 2} {kind}: {time} size: {size} magic: {magic} compresscodec: none crc: "
    assert lines[3].startswith("offset: 11" + middle)
    deep = output_lines("--files", str(log), "--print-data-log")
    stamps = [1010 + n if magic else -1 for n in range(8)]
    shown = [re.sub(r" crc: \d+", "", line) for line in deep if " isValid: " in line]
    assert shown == [
        f"| offset: {10 + n} {kind}: {stamps[n]} keySize: {-1 if n % 2 else 2} valueSize: 7 isValid: true "
        f"{'' if n % 2 else 'key: k0 '}payload: value {n % 2}"
        for n in range(8)
    ]
    assert deep[-2:] == [f"Non-consecutive offsets in {log}", "  -1 is followed by 10"]
    (document,) = json.loads(run("--files", str(log), "--deep-iteration", "--json").stdout)
    assert [len(entry["records"]) for entry in document["entries"]] == [1, 1, 2, 2, 2, 2]
    assert document["entries"][2]["codec"] == "gzip"
    index = log.with_suffix(".index")
    index.write_bytes(b"".join(struct.pack(">ii", *pair) for pair in ((1, size + 2), (8, len(old)))))
    assert run("--files", str(index)).stdout.splitlines()[-1] == "  Index offset: 18, log offset: 19"


def test_damaged_messages_of_older_formats(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000010.log"
    (packed,) = messages(for_old_client(batch(10, 1), 1, 0, 1 << 20))
    inner = bytearray(decompress_message(1, 1, packed.value or b"", 1 << 20))
    inner[-1] ^= 1
    plain = for_old_client(batch(10, 0), 1, 0, 1 << 20)
    for damaged, line, wrong in (
        (plain[:40] + bytes([plain[40] ^ 1]) + plain[41:], "isvalid: false", "the message at position 0 of"),
        (repacked(bytes(inner)), "isValid: false", "the message at offset 11 of"),
        (repacked(b""), "The message at offset 11 cannot be read", "no inner records"),
        (repacked(b"not gzip", pack=False), "The message at offset 11 cannot be read", "gzip"),
        (plain[:-3], "Found 38 invalid bytes at the end of", "Found 38 invalid bytes"),
        (bytes(40), "Found 40 invalid bytes at the end of", "record size 0 smaller than"),
    ):
        log.write_bytes(damaged)
        result = run("--files", str(log), "--deep-iteration")
        assert result.exit_code == 1
        assert line in result.stdout
        assert wrong in result.stderr


def batch(base: int, codec: int) -> bytes:
    """Two records, the second without a key."""
    records = [Record(base + n, 1000 + base + n, None if n else b"k0", b"value %d" % n) for n in range(2)]
    return build(records, codec=codec, base_offset=base)


def repacked(inner: bytes, *, pack: bool = True) -> bytes:
    """A message of magic 1 at offset 11 that is packed with gzip."""
    value = compress(1, inner) if pack else inner
    body = struct.pack(">bbqii", 1, 1, 1011, -1, len(value)) + value
    return struct.pack(">qiI", 11, 4 + len(body), zlib.crc32(body)) + body


def test_remote_segments(tmp_path: Path) -> None:
    """The texts are those of Kafka's tool on these records."""
    partition = TopicIdPartitionEntry(name="flights", id=bytes(range(16)), partition=3)
    segment = RemoteLogSegmentIdEntry(topic_id_partition=partition, id=bytes(range(1, 17)))
    epochs = [SegmentLeaderEpochEntry(leader_epoch=0, offset=5), SegmentLeaderEpochEntry(leader_epoch=2, offset=7)]
    body: dict[str, Any] = {
        "start_offset": 5,
        "end_offset": 9,
        "broker_id": 1,
        "max_timestamp_ms": 11,
        "event_timestamp_ms": 12,
        "segment_leader_epochs": epochs,
        "segment_size_in_bytes": 100,
    }
    records: list[Message] = [
        RemoteLogSegmentMetadataRecord(
            remote_log_segment_id=segment, custom_metadata=b"abc", txn_index_empty=True, **body
        ),
        RemoteLogSegmentMetadataUpdateRecord(
            remote_log_segment_id=segment, broker_id=1, event_timestamp_ms=13, remote_log_segment_state=1
        ),
        RemotePartitionDeleteMetadataRecord(
            topic_id_partition=partition, broker_id=2, event_timestamp_ms=14, remote_partition_delete_state=2
        ),
        RemoteLogSegmentMetadataSnapshotRecord(segment_id=bytes(range(1, 17)), remote_log_segment_state=2, **body),
    ]
    values = [encode(record, 0, bytes([1, record.API, 0])) for record in records]
    values += [b"\1\x63\0", encode(records[1], 0, b"\1\1\0")[:-2] + b"\x09\0"]
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(build([Record(n, 1000, None, value) for n, value in enumerate(values)]))
    lines = output_lines("--files", str(log), "--remote-log-metadata-decoder")
    payloads = [line.partition(" payload: ")[2] for line in lines if line.startswith("|")]
    where = "RemoteLogSegmentId{topicIdPartition=AAECAwQFBgcICQoLDA0ODw:flights-3, id=AQIDBAUGBwgJCgsMDQ4PEA}"
    assert payloads == [
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={where}, startOffset=5, endOffset=9, brokerId=1, "
        "maxTimestampMs=11, eventTimestampMs=12, segmentLeaderEpochs={0=5, 2=7}, segmentSizeInBytes=100, "
        "customMetadata=Optional[CustomMetadata{3 bytes}], state=COPY_SEGMENT_STARTED, txnIdxEmpty=true}",
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={where}, customMetadata=Optional.empty, "
        "state=COPY_SEGMENT_FINISHED, eventTimestampMs=13, brokerId=1}",
        "RemotePartitionDeleteMetadata{topicPartition=AAECAwQFBgcICQoLDA0ODw:flights-3, "
        "state=DELETE_PARTITION_FINISHED, eventTimestampMs=14, brokerId=2}",
        "RemoteLogSegmentMetadataSnapshot{segmentId=AQIDBAUGBwgJCgsMDQ4PEA, startOffset=5, endOffset=9, "
        "maxTimestampMs=11, segmentLeaderEpochs={0=5, 2=7}, segmentSizeInBytes=100, customMetadata=Optional.empty, "
        "state=DELETE_SEGMENT_STARTED, txnIdxEmpty=false}",
        "Error at offset 4, skipping. version 0 of record type 99 is not known",
        "Error at offset 5, skipping. state 9 is not known",
    ]


def test_damaged_batches_and_trailing_bytes_are_reported(data: Path, tmp_path: Path) -> None:
    source = Path(log_of(data, "t"))
    damaged = bytearray(source.read_bytes())
    damaged[80] ^= 1
    (tmp_path / source.name).write_bytes(damaged + b"rest")
    result = run("--files", str(tmp_path / source.name))
    assert result.exit_code == 1
    assert "isvalid: false" in result.stdout
    assert f"Found 4 invalid bytes at the end of {source.name}" in result.stdout
    assert result.stderr.startswith("ottla: 2 problems found, the first: the batch at position 0")
    index = tmp_path / source.with_suffix(".timeindex").name
    index.write_bytes((5).to_bytes(8, "big") + (7).to_bytes(4, "big"))
    assert "The following indexed offsets are not found" in run("--files", str(index)).stdout
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    assert output_lines("--files", str(tmp_path / "notes.txt"))[1] == f"Ignoring unknown file {tmp_path / 'notes.txt'}"
    absent = run("--files", str(tmp_path / "00000000000000000007.log"))
    assert (absent.exit_code, "No such file" in absent.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--offsets-decoder", "--transaction-log-decoder"], "at most one"),
        (["--key-decoder-class", "Odd"], "Odd is not a decoder"),
    ],
)
def test_wrong_usage(words: list[str], why: str) -> None:
    result = run("--files", "x.log", *words)
    assert (result.exit_code, why in result.stderr) == (2, True)
