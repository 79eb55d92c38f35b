"""Adopts a data directory of Apache Kafka (KRaft): copies its metadata into metadata.db and changes no partition file.

Everything is read and checked before anything is written. The only output is one file, which is renamed when it is complete: a
rejected directory or an interrupted adoption leaves Apache Kafka's directory unchanged. Kafka's metadata log stays in place, so
that Apache Kafka can use the directory again.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from ottla.environment import Random
from ottla.environment.disk import DiskStore
from ottla.log.directory import (
    CLEAN_SHUTDOWN,
    METADATA_LOG,
    Identity,
    UnusableDirectory,
    read_identity,
)
from ottla.metadata.configs import BrokerValues
from ottla.metadata.configs.alteration import BROKER, SET, TOPIC, Edit, check_set
from ottla.metadata.features import adopted
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.image.stored import stored
from ottla.metadata.offline.kraft import KraftMetadata, KraftTopic, UnreadableMetadata
from ottla.metadata.plans.topics import check_name
from ottla.metadata.refusal import Refused
from ottla.metadata.store import Change, keys
from ottla.metadata.store.sqlite import SqliteStore
from ottla.protocol.uuids import uuid_bytes
from ottla.records.batch import HEADER_SIZE, crc_ok, records_of, scan
from ottla.records.errors import CorruptRecords
from ottla.records.record import Record

DATABASE: Final = "metadata.db"
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PARTITION: Final = re.compile(r"(.+)-(\d+)")
_NAMED_AT_MOST: Final = 3
_LARGEST_BATCH: Final = 64 << 20
"""Size in bytes of the largest batch of metadata: Kafka's controller writes 8 MB at most."""
_PRODUCER_ID_RANGE: Final = 1 << 32
_PRODUCER_ID_RANGES: Final = 1 << 30


class CannotAdopt(Exception):
    """Directory that cannot be adopted: the reason and its remedy, in one line."""


class AlreadyAdopted(Exception):
    """Directory that belongs to Ottla already."""


class Adoption(NamedTuple):
    """Adopted contents of a directory.

    metadata   the metadata in Kafka's log
    topics     by name, as Ottla stores them
    configs    of brokers, groups and client-metrics subscriptions
    left_out   parts that were not adopted, one sentence each
    next_producer_id  the first producer id that Ottla will assign
    """

    identity: Identity
    metadata: KraftMetadata
    topics: Sequence[TopicImage]
    configs: dict[tuple[int, str], dict[str, str]]
    left_out: Sequence[str]
    next_producer_id: int


def adopt(
    home: Path,
    log_dirs: Sequence[Path],
    broker: BrokerValues,
    random: Random,
    *,
    node_id: int | None = None,
    dry_run: bool = False,
) -> Adoption:
    """Take over the directories of a stopped Apache Kafka; with `dry_run` only return what would be adopted.

    home      directory of `__cluster_metadata-0`: metadata.log.dir, or the first of the log directories
    log_dirs  all of log.dirs
    broker    the configs that Ottla will run with
    node_id   node that must own the directory; None accepts any

    Raises CannotAdopt and AlreadyAdopted.
    """
    places = [*log_dirs, *([home] if home not in log_dirs else [])]
    for place in places:
        _check_files(place)
    identity = _identity(home, places)
    if node_id not in (None, identity.node_id):
        raise CannotAdopt(f"{home} belongs to node {identity.node_id}, not to node {node_id}: give the right node.id")
    with _locked(places):
        _check_unadopted(home)
        for path in log_dirs:
            if not (path / CLEAN_SHUTDOWN).exists():
                raise CannotAdopt(
                    f"{path} was not left by a clean stop: start Apache Kafka on it and stop it with SIGTERM"
                )
        metadata = read_metadata(home)
        adoption = _adoptable(metadata, identity, broker, random)
        _check_partitions(adoption.topics, log_dirs)
        if not dry_run:
            _write(home, adoption)
    return adoption


def _check_files(place: Path) -> None:
    """Raise CannotAdopt for links, and for what is no file, in the part of a directory that a broker reads and writes: through
    a link it would read, append to and delete files elsewhere, and a pipe would stop it for ever.
    """
    try:
        with os.scandir(place) as entries:
            present = sorted(entries, key=lambda entry: entry.name)
        for entry in present:
            if entry.is_dir(follow_symlinks=False):
                if entry.name == METADATA_LOG or _PARTITION.fullmatch(entry.name):
                    with os.scandir(entry.path) as inner:
                        inner_files = sorted(inner, key=lambda file: file.name)
                    for file in inner_files:
                        _check_file(file)
            elif entry.name not in (DATABASE, ".lock"):
                _check_file(entry)
    except OSError as cause:
        raise CannotAdopt(f"cannot read {cause.filename}: {cause.strerror}") from None


def _check_file(entry: "os.DirEntry[str]") -> None:
    if entry.is_symlink():
        raise CannotAdopt(f"{entry.path} is a link: put the file or directory itself in its place")
    if not entry.is_file(follow_symlinks=False):
        raise CannotAdopt(f"{entry.path} is no regular file: move it away")


def _identity(home: Path, places: Sequence[Path]) -> Identity:
    """Return the identity of the directories. Raises CannotAdopt unless all belong to one node of Apache Kafka."""
    store = DiskStore()
    identities = []
    for path in places:
        try:
            identity = read_identity(store, path)
        except (UnusableDirectory, OSError) as cause:
            raise CannotAdopt(str(cause)) from None
        if identity is None:
            raise CannotAdopt(f"{path} has no meta.properties: it is no data directory of Apache Kafka")
        identities.append(identity)
    first = identities[0]
    for path, identity in zip(places, identities, strict=True):
        if identity[:2] != first[:2]:
            raise CannotAdopt(
                f"{path} belongs to node {identity.node_id} of cluster {identity.cluster_id}, {places[0]} to node "
                f"{first.node_id} of cluster {first.cluster_id}: give the log.dirs of one broker"
            )
    if not (home / METADATA_LOG).is_dir() and not (home / DATABASE).exists():
        raise CannotAdopt(
            f"{home} has no {METADATA_LOG}: give the metadata.log.dir of that Apache Kafka, or its server.properties "
            "with --config"
        )
    return first


@contextmanager
def _locked(places: Sequence[Path]) -> Iterator[None]:
    """Lock the directories against every broker. Raises CannotAdopt when a broker is running on them."""
    store = DiskStore()
    with ExitStack() as held:
        for path in places:
            try:
                held.callback(store.lock(path))
            except BlockingIOError as cause:
                raise CannotAdopt(f"{cause}: stop it first") from None
            except OSError as cause:
                raise CannotAdopt(f"cannot use {path}: {cause.strerror}") from None
        yield


def _check_unadopted(home: Path) -> None:
    if not (home / DATABASE).exists():
        return
    store = SqliteStore(home / DATABASE)
    entry = store.get(keys.ADOPTED)
    store.close()
    if entry is None or entry.value is None:
        raise AlreadyAdopted(f"{home} is Ottla's own: there is nothing to import")
    before = keys.Adopted.decoded(entry.value).offset
    now = read_metadata(home).offset
    if now != before:
        raise CannotAdopt(
            f"{home} was imported at offset {before} of Kafka's metadata, and Apache Kafka has written up to {now} since: "
            f"to import it again, move {home / DATABASE} away"
        )
    raise AlreadyAdopted(f"{home} is imported already")


def read_metadata(home: Path) -> KraftMetadata:
    """Replay `__cluster_metadata-0` in `home`. Raises CannotAdopt when it cannot be read."""
    directory = home / METADATA_LOG
    metadata = KraftMetadata()
    try:
        names = sorted(os.listdir(directory))
        snapshots = [name for name in names if _SNAPSHOT.fullmatch(name)]
        files = [directory / name for name in snapshots[-1:]]
        if snapshots:
            _replay(metadata, files[0], 0)
            metadata.offset = int(snapshots[-1][:20])
        segments = [directory / name for name in names if name.endswith(".log")]
        for path, following in zip(segments, [*segments[1:], None], strict=True):
            if following is None or int(following.stem) > metadata.offset:
                _replay(metadata, path, metadata.offset)
        if metadata.offset == 0 and (home / "bootstrap.checkpoint").exists():
            _replay(metadata, home / "bootstrap.checkpoint", 0)  # formatted, but never started
            metadata.offset = 0
    except OSError as cause:
        raise CannotAdopt(f"cannot read {cause.filename}: {cause.strerror}") from None
    return metadata


def _replay(metadata: KraftMetadata, path: Path, from_offset: int) -> None:
    try:
        for batch in _batches(path):
            metadata.replay(record for record in batch if record.offset >= from_offset)
    except (CorruptRecords, UnreadableMetadata) as cause:
        raise CannotAdopt(f"{path} cannot be read: {cause}") from None


def _batches(path: Path) -> Iterator[list[Record]]:
    """Yield the data records of a log or snapshot, batch by batch. Raises CorruptRecords for an incomplete or invalid batch."""
    with path.open("rb") as file:
        while head := file.read(HEADER_SIZE):
            if len(head) < HEADER_SIZE:
                raise CorruptRecords(f"a batch is cut short at position {file.tell() - len(head)}")
            start = file.tell() - HEADER_SIZE
            size = int.from_bytes(head[8:12], "big", signed=True) + 12
            if size > _LARGEST_BATCH:
                raise CorruptRecords(f"a batch of {size} bytes at position {start}")
            data = head + file.read(max(size - HEADER_SIZE, 0))
            scanned = scan(data)
            if not scanned.batches or not crc_ok(data, scanned.batches[0]):
                raise CorruptRecords(f"a damaged batch at position {start}")
            if scanned.batches[0].compression:
                raise CorruptRecords(f"a compressed batch at position {start}, which Apache Kafka never writes there")
            yield [] if scanned.batches[0].is_control else records_of(data)


def _adoptable(metadata: KraftMetadata, identity: Identity, broker: BrokerValues, random: Random) -> Adoption:
    """Select the adopted part of Kafka's metadata. Raises CannotAdopt for metadata that a single-node cluster cannot have."""
    elsewhere = [
        f"{topic.name}-{index} on {', '.join(map(str, partition.replicas))}"
        for topic in metadata.topics.values()
        for index, partition in topic.partitions.items()
        if partition.replicas != (identity.node_id,)
    ]
    if elsewhere:
        raise CannotAdopt(
            f"node {identity.node_id} is not the only one with replicas ({_abbreviated(elsewhere)}): move all of them to node "
            f"{identity.node_id} alone with kafka-reassign-partitions first"
        )
    left_out: list[str] = []
    topics = []
    for topic in sorted(metadata.topics.values(), key=lambda topic: topic.name):
        _check_topic(topic)
        texts = metadata.configs.get((TOPIC, topic.name), {})
        kept = _kept_configs(TOPIC, topic.name, texts, broker, left_out)
        topics.append(_topic(topic, identity.node_id, kept))
    configs = {}
    for (kind, name), texts in sorted(metadata.configs.items()):
        if kind == TOPIC:
            continue
        if kind == BROKER and name not in ("", str(identity.node_id)):
            left_out.append(f"the configs of broker {name}")
            continue
        kept = _kept_configs(kind, name, texts, broker, left_out)
        if kept:
            configs[kind, name] = kept
    for kind, count in sorted(metadata.unknown.items()):
        left_out.append(f"{count} records of type {kind}, which this release does not know")
    return Adoption(identity, metadata, topics, configs, left_out, _first_producer_id(metadata, random))


def _check_topic(topic: KraftTopic) -> None:
    """Raise CannotAdopt for a topic that no Kafka creates: its name is the name of a directory."""
    try:
        check_name(topic.name)
    except Refused as cause:
        raise CannotAdopt(f"Kafka's metadata is damaged: {cause.message}") from None
    if sorted(topic.partitions) != list(range(len(topic.partitions))):
        raise CannotAdopt(f"Kafka's metadata is damaged: partitions of {topic.name} are missing")


def _first_producer_id(metadata: KraftMetadata, random: Random) -> int:
    """Return a producer id that neither Apache Kafka, counting up from its last one, nor another adoption ever reaches.

    If Ottla and a Kafka that uses its directory again assigned the same producer id, the second producer's first batches
    would be taken for duplicates of the first one's, and lost.
    """
    return metadata.next_producer_id + (1 + random.below(_PRODUCER_ID_RANGES)) * _PRODUCER_ID_RANGE


def _topic(topic: KraftTopic, node_id: int, configs: dict[str, str]) -> TopicImage:
    """Return the topic with its partitions led by this node, in their present leader epochs."""
    partitions = tuple(
        PartitionImage((node_id,), (node_id,), node_id, partition.leader_epoch)
        for _, partition in sorted(topic.partitions.items())
    )
    return TopicImage(topic.name, topic.id, partitions, configs)


def _kept_configs(
    kind: int, name: str, texts: dict[str, str], broker: BrokerValues, left_out: list[str]
) -> dict[str, str]:
    kept = {}
    for config, text in sorted(texts.items()):
        try:
            check_set(kind, name, {}, {config: text}, [Edit(config, SET, text)], broker, has_elr=True)
        except Refused as cause:
            left_out.append(f"{config} of {name or 'all brokers'}: {cause.message}")
        else:
            kept[config] = text
    return kept


def _check_partitions(topics: Sequence[TopicImage], log_dirs: Sequence[Path]) -> None:
    """Raise CannotAdopt unless every partition lies in one of `log_dirs`, and in one only."""
    store = DiskStore()
    known = {f"{topic.name}-{index}": topic.id for topic in topics for index in range(len(topic.partitions))}
    directories: dict[str, Path] = {}
    for path in log_dirs:
        for name in sorted(os.listdir(path)):
            if name == METADATA_LOG or not _PARTITION.fullmatch(name) or not (path / name).is_dir():
                continue
            if name not in known:
                raise CannotAdopt(f"{path / name} is of no topic in Kafka's metadata: move it away")
            if name in directories:
                raise CannotAdopt(f"{path / name} is in {directories[name]} too: start Apache Kafka once and stop it")
            directories[name] = path
            match = re.search(
                r"^topic_id: (\S+)$", store.read_text(path / name / "partition.metadata") or "", re.MULTILINE
            )
            if match and uuid_bytes(match[1]) != known[name]:
                raise CannotAdopt(f"{path / name} is of another topic with that name: move it away")
    missing = sorted(set(known) - set(directories))
    if missing:
        raise CannotAdopt(
            f"{_abbreviated(missing)} cannot be found in {', '.join(map(str, log_dirs))}: give all log.dirs of that "
            "Apache Kafka"
        )


def _abbreviated(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _write(home: Path, adoption: Adoption) -> None:
    """Write the adopted metadata into metadata.db, atomically."""
    metadata = adoption.metadata
    put = {
        keys.CLUSTER_ID: adoption.identity.cluster_id.encode(),
        keys.ADOPTED: keys.Adopted(metadata.offset).encoded(),
        keys.PRODUCER_IDS: str(adoption.next_producer_id).encode(),
    }
    for topic in adoption.topics:
        put |= stored(topic)
    put |= {keys.config_key(*resource): keys.compact(texts) for resource, texts in adoption.configs.items()}
    put |= keys.feature_levels(adopted(metadata.features))
    put |= {keys.quota_key(entity): keys.compact(quotas) for entity, quotas in metadata.quotas.items()}
    put |= {keys.scram_key(*user): credential.encoded() for user, credential in metadata.scram.items()}
    put |= {keys.acl_key(acl): acl.encoded() for acl in metadata.acls.values()}
    put |= {keys.TOKENS + token_id: token.encoded() for token_id, token in metadata.tokens.items()}
    path = home / f"{DATABASE}.importing"
    path.unlink(missing_ok=True)
    store = SqliteStore(path)
    outcome = store.change_now(Change(put=put))
    store.close()
    if outcome.error is not None:
        raise CannotAdopt(outcome.error)
    path.rename(home / DATABASE)
    directory = os.open(home, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
