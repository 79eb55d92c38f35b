"""Adoption of a KRaft directory, and its refusal before anything is written."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.metadata.kraft_directory import CLUSTER, PLAIN, add_partition, batch, identify, lay_out, topic, value

from ottla.broker.config import broker_config
from ottla.environment.system import SystemRandom
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.image.stored import topic_entries
from ottla.metadata.offline.adoption import Adoption, AlreadyAdopted, CannotAdopt, adopt
from ottla.metadata.store import Change, keys
from ottla.metadata.store.sqlite import SqliteStore
from ottla.protocol.messages import metadata_records as records
from ottla.protocol.schema import Message
from ottla.records.batch import build
from ottla.records.codec_names import GZIP
from ottla.records.record import Record
from ottla.security.delegation_tokens import DelegationToken

OTHER = bytes(range(1, 17))


def run_adoption(*directories: Path, dry_run: bool = False, node_id: int | None = None) -> Adoption:
    return adopt(directories[0], directories, broker_config({}), SystemRandom(), node_id=node_id, dry_run=dry_run)


def config(name: str, text: str, kind: int = 2, resource: str = "plain") -> Message:
    return records.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=text)


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_everything_lies_in_the_store(tmp_path: Path) -> None:
    home = tmp_path / "kafka"
    entity = [records.EntityData(entity_type="user", entity_name="u")]
    credential = records.UserScramCredentialRecord(name="a", mechanism=1, salt=b"s", iterations=4096)
    lay_out(
        home,
        [
            *topic("plain", PLAIN, 2),
            config("retention.ms", "-1"),
            config("no.such.config", "1"),
            config("log.cleaner.threads", "2", 4, "1"),
            config("log.cleaner.threads", "3", 4, "2"),
            records.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=5.0),
            records.FeatureLevelRecord(name="metadata.version", feature_level=25),
            records.FeatureLevelRecord(name="odd.version", feature_level=1),
            credential,
            records.AccessControlEntryRecord(
                id=PLAIN,
                resource_type=2,
                resource_name="t",
                pattern_type=3,
                principal="User:a",
                host="*",
                operation=4,
                permission_type=3,
            ),
            records.DelegationTokenRecord(token_id="i", owner="User:a", requester="User:b", expiration_timestamp=9),
            records.ProducerIdsRecord(broker_id=1, next_producer_id=3000),
        ],
    )
    before = files(home)
    planned = run_adoption(home, dry_run=True)
    assert files(home) == before | {".lock": b""}
    done = run_adoption(home)
    assert (done.topics, done.configs, done.left_out) == (planned.topics, planned.configs, planned.left_out)
    partition = PartitionImage((1,), (1,), 1, 3)
    assert done.topics == [TopicImage("plain", PLAIN, (partition, partition), {"retention.ms": "-1"})]
    assert list(done.left_out) == [
        "no.such.config of plain: Unknown topic config name: no.such.config",
        "the configs of broker 2",
    ]
    store = SqliteStore(home / "metadata.db")
    entries = {entry.key: entry.value for entry in store.range("/")}
    store.close()
    assert entries == {
        "/cluster/adopted": b'{"offset":14}',
        '/acls/[2,3,"t","User:a","*",4,3]': (
            b'{"format":1,"resource_type":2,"pattern_type":3,"name":"t","principal":"User:a","host":"*","operation":4,'
            b'"permission":3}'
        ),
        "/cluster/id": CLUSTER.encode(),
        "/configs/4/1": b'{"log.cleaner.threads":"2"}',
        "/features/metadata.version": b"25",
        "/producer_ids/next": str(done.next_producer_id).encode(),
        '/quotas/[["user","u"]]': b'{"producer_byte_rate":5.0}',
        "/scram/1/a": b'["73","","",4096]',
        "/tokens/i": DelegationToken("i", "User:a", "User:b", (), 0, 9, 0).encoded(),
    } | topic_entries(done.topics[0])
    assert done.next_producer_id % (1 << 32) == 3000
    assert {name: data for name, data in files(home).items() if name not in (".lock", "metadata.db")} == before


def test_a_second_adoption_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "kafka"
    messages = topic("plain", PLAIN, 1)
    lay_out(home, messages)
    run_adoption(home)
    with pytest.raises(AlreadyAdopted, match="is imported already"):
        run_adoption(home)
    log = home / "__cluster_metadata-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + batch([config("retention.ms", "1")], len(messages)))
    with pytest.raises(
        CannotAdopt, match="imported at offset 2 of Kafka's metadata, and Apache Kafka has written up to 3"
    ):
        run_adoption(home)


def test_records_below_a_snapshot_are_skipped(tmp_path: Path) -> None:
    home = tmp_path / "kafka"
    lay_out(home, topic("plain", PLAIN, 1))
    log = home / "__cluster_metadata-0"
    (log / f"{0:020d}.log").write_bytes(batch([*topic("old", OTHER, 1), config("segment.ms", "7")]))
    (log / f"{2:020d}-{1:010d}.checkpoint").write_bytes(batch(topic("plain", PLAIN, 1)))
    (log / f"{3:020d}.log").write_bytes(batch([config("retention.ms", "1")], 3))
    done = run_adoption(home)
    assert [(row.name, row.configs) for row in done.topics] == [("plain", {"retention.ms": "1", "segment.ms": "7"})]
    assert done.metadata.offset == 4


def test_several_log_directories(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    lay_out(first, topic("plain", PLAIN, 2))
    identify(second)
    (first / "plain-1").rename(second / "plain-1")
    with pytest.raises(CannotAdopt, match=r"plain-1 cannot be found in .*/first: give all log\.dirs"):
        run_adoption(first)
    assert len(run_adoption(first, second).topics[0].partitions) == 2
    assert not (second / "metadata.db").exists()


def _unclean(home: Path) -> None:
    (home / ".kafka_cleanshutdown").unlink()


def _zookeeper(home: Path) -> None:
    identify(home, version=0)


def _no_identity(home: Path) -> None:
    (home / "meta.properties").unlink()


def _no_metadata(home: Path) -> None:
    shutil.rmtree(home / "__cluster_metadata-0")


def _another_topic(home: Path) -> None:
    shutil.rmtree(home / "plain-0")
    add_partition(home, "plain", 0, OTHER)


def _stranger(home: Path) -> None:
    add_partition(home, "stranger", 0, OTHER)


def _damage(home: Path) -> None:
    log = home / "__cluster_metadata-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(bytes(data))


def _torn(home: Path) -> None:
    log = home / "__cluster_metadata-0" / f"{0:020d}.log"
    os.truncate(log, log.stat().st_size - 1)


def _two_brokers(home: Path) -> None:
    log = home / "__cluster_metadata-0" / f"{0:020d}.log"
    log.write_bytes(batch(topic("plain", PLAIN, 1, replicas=(1, 2))))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_unclean, "was not left by a clean stop: start Apache Kafka on it and stop it"),
        (_zookeeper, "with ZooKeeper"),
        (_no_identity, "is no data directory of Apache Kafka"),
        (_no_metadata, r"has no __cluster_metadata-0: give the metadata\.log\.dir"),
        (_another_topic, "plain-0 is of another topic with that name"),
        (_stranger, "stranger-0 is of no topic in Kafka's metadata"),
        (_damage, r"00000000000000000000\.log cannot be read: a damaged batch at position 0"),
        (_torn, "a damaged batch at position 0"),
        (_two_brokers, r"node 1 is not the only one with replicas \(plain-0 on 1, 2\)"),
    ],
)
def test_a_refused_directory_is_left_unchanged(tmp_path: Path, spoil: Callable[[Path], None], why: str) -> None:
    home = tmp_path / "kafka"
    lay_out(home, topic("plain", PLAIN, 1))
    spoil(home)
    before = files(home)
    with pytest.raises(CannotAdopt, match=why):
        run_adoption(home)
    assert {name: data for name, data in files(home).items() if name != ".lock"} == before


def test_another_node_and_another_cluster_are_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    lay_out(first, topic("plain", PLAIN, 1))
    identify(second, cluster="other")
    with pytest.raises(CannotAdopt, match="belongs to node 1 of cluster other"):
        run_adoption(first, second)
    with pytest.raises(CannotAdopt, match=r"belongs to node 1, not to node 2: give the right node\.id"):
        run_adoption(first, node_id=2)


def test_a_directory_of_ottla_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "kafka"
    lay_out(home, topic("plain", PLAIN, 1))
    store = SqliteStore(home / "metadata.db")
    store.change(Change(put={keys.CLUSTER_ID: b"x"}))
    store.close()
    with pytest.raises(AlreadyAdopted, match="is Ottla's own"):
        run_adoption(home)


@pytest.mark.parametrize("name", ["../outside", "..", ".", "", "a/b", "/etc", "a\0b", "a\x1b[31m", "x" * 250])
@pytest.mark.parametrize("partitions", [0, 1])
def test_topics_with_names_that_are_paths_are_refused(tmp_path: Path, name: str, partitions: int) -> None:
    home = tmp_path / "kafka"
    lay_out(home, [])
    log = home / "__cluster_metadata-0" / f"{0:020d}.log"
    log.write_bytes(batch(topic(name, PLAIN, partitions)))
    with pytest.raises(CannotAdopt, match="Topic name is invalid"):
        run_adoption(home)
    assert not (home / "metadata.db").exists()
    assert list(tmp_path.iterdir()) == [home]


def test_missing_partitions_are_refused(tmp_path: Path) -> None:
    home = tmp_path / "kafka"
    lay_out(home, [])
    messages = topic("plain", PLAIN, 1)
    assert isinstance(messages[1], records.PartitionRecord)
    messages[1].partition_id = 2**31 - 1
    (home / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(batch(messages))
    with pytest.raises(CannotAdopt, match="partitions of plain are missing"):
        run_adoption(home)


def test_links_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root:x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for place in ("meta.properties", "recovery-point-offset-checkpoint", "plain-0", "plain-0/1.log", "plain-0/x.index"):
        home = tmp_path / "kafka"
        lay_out(home, topic("plain", PLAIN, 1))
        path = home / place
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(elsewhere if place == "plain-0" else secret)
        with pytest.raises(CannotAdopt, match=f"{place} is a link"):
            run_adoption(home)
        shutil.rmtree(home)
    assert secret.read_text() == "root:x"
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("place", ["meta.properties", "__cluster_metadata-0/00000000000000000009.log", "plain-0/1.log"])
def test_pipes_are_refused(tmp_path: Path, place: str) -> None:
    home = tmp_path / "kafka"
    lay_out(home, topic("plain", PLAIN, 1))
    (home / place).unlink(missing_ok=True)
    os.mkfifo(home / place)
    with pytest.raises(CannotAdopt, match=f"{place} is no regular file"):
        run_adoption(home)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (bytes(8) + b"\x7f\xff\xff\xff" + bytes(100), "a batch of 2147483659 bytes at position 0"),
        (bytes(8) + b"\xff\xff\xff\xff" + bytes(100), "a damaged batch at position 0"),
        (build([Record(0, 0, None, bytes(1 << 20))], codec=GZIP), "a compressed batch at position 0"),
    ],
    ids=["huge", "negative", "compressed"],
)
def test_metadata_batches_with_a_wrong_size_are_refused(tmp_path: Path, data: bytes, why: str) -> None:
    home = tmp_path / "kafka"
    lay_out(home, [])
    path = home / "__cluster_metadata-0" / f"{0:020d}.log"
    path.write_bytes(data)
    os.truncate(path, 3 << 30)  # sparse: it takes no room on the disk
    with pytest.raises(CannotAdopt, match=why):
        run_adoption(home)


def test_wrong_counts_in_metadata_records_are_refused(tmp_path: Path) -> None:
    home = tmp_path / "kafka"
    lay_out(home, [])
    honest = value(topic("plain", PLAIN, 1)[1])
    for lie in (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff" * 10):
        for at in range(3, len(honest)):
            data = build([Record(0, 0, None, honest[:at] + lie + honest[at + 1 :])])
            (home / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(data)
            try:
                run_adoption(home, dry_run=True)
            except CannotAdopt:
                continue
