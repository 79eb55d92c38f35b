"""The next image: entries of the metadata store, applied to the image before.

A delivery may cover several revisions, and then has only the newest entry of each key. So a topic may be deleted and created
again between two images, epochs may jump, and a state without a leader may never be seen.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.metadata.image import (
    EMPTY,
    NO_LEADER,
    BrokerImage,
    ControllerImage,
    Delta,
    Image,
    KeyRevision,
    Liveness,
    PartitionImage,
    TopicImage,
    UnknownFormat,
)
from ottla.metadata.image.layered import Layered
from ottla.metadata.store import Entry, Snapshot, keys
from ottla.security.acls import Acl
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.scram import ScramCredential


class _Topics(NamedTuple):
    """Topics of the next image, and their part of the delta."""

    topics: Layered[str, TopicImage]
    topics_by_id: Layered[bytes, TopicImage]
    changed: tuple[TopicImage, ...]
    deleted: tuple[TopicImage, ...]
    moved: dict[str, tuple[int, ...]]


def loaded(snapshot: Snapshot) -> Image:
    """Return the image of the whole contents of a store. Raises UnknownFormat."""
    return advanced(EMPTY, snapshot.revision, snapshot.entries).image


def advanced(before: Image, revision: int, entries: Iterable[Entry]) -> Delta:
    """Return the next image after these entries, with the differences to `before`. Raises UnknownFormat."""
    by_kind: dict[str, list[Entry]] = {}
    written: dict[str, KeyRevision | None] = {}
    for entry in entries:
        by_kind.setdefault(entry.key.split("/", 2)[1], []).append(entry)
        written[entry.key] = None if entry.value is None else KeyRevision(entry.revision, entry.created)
    fields: dict[str, Any] = {"revision": revision, "written": _layered(before.written).with_changes(written)}
    delta: dict[str, Any] = {}
    if "topics" in by_kind or "partitions" in by_kind:
        topics = _topics(before, by_kind.get("topics", ()), by_kind.get("partitions", ()))
        fields.update(topics=topics.topics, topics_by_id=topics.topics_by_id)
        delta.update(changed=topics.changed, deleted=topics.deleted, moved=topics.moved)
    if "configs" in by_kind:
        configs = {keys.config_of(entry.key): _json(entry) for entry in by_kind["configs"]}
        fields["configs"] = _merged(before.configs, configs)
        delta["configured"] = frozenset(configs)
    for kind in ("features", "quotas", "scram", "tokens", "acls"):
        if kind in by_kind:
            fields.update(_settings(before, kind, by_kind[kind]))
            delta["settings"] = True
    for entry in by_kind.get("features", ()):
        if entry.key == keys.METADATA_VERSION and (_json(entry) or 0) > keys.NEWEST_METADATA_VERSION:
            raise UnknownFormat("the metadata was written by a newer release of Ottla: upgrade this one")
    for entry in by_kind.get("cluster", ()):
        if entry.key == keys.CLUSTER_ID and entry.value is not None:
            fields["cluster_id"] = entry.value.decode()
        elif entry.key == keys.SECRET and entry.value is not None:
            fields["secret"] = bytes.fromhex(entry.value.decode())
    if by_kind.keys() & {"brokers", "live", "controller"}:
        fields.update(_membership(before, by_kind))
        delta["membership"] = True
    return Delta(before._replace(**fields), before=before, **delta)


def _json(entry: Entry) -> Any:
    """Return the decoded value of an entry, None for a deleted key."""
    return None if entry.value is None else json.loads(entry.value)


def _merged(before: Mapping[Any, Any], changes: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a mapping with changed values; None removes a key."""
    merged = dict(before)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


def _topics(before: Image, topics: Iterable[Entry], partitions: Iterable[Entry]) -> _Topics:
    changed: dict[str, TopicImage] = {}
    deleted: list[TopicImage] = []
    for entry in topics:
        name = entry.key[len(keys.TOPICS) :]
        old = before.topics.get(name)
        new = None if entry.value is None else TopicImage.decoded(entry.key, name, entry.value)
        if old is not None and (new is None or new.id != old.id):
            deleted.append(old)
        elif new is not None and old is not None and len(old.partitions) <= len(new.partitions):
            # The states of partitions have keys of their own, and are unchanged unless those are in this delivery.
            new = new._replace(partitions=old.partitions + new.partitions[len(old.partitions) :])
        if new is not None:
            changed[name] = new
    by_id = {topic.id: topic for topic in changed.values()}
    deleted_ids = {topic.id for topic in deleted}
    states: dict[bytes, dict[int, PartitionImage]] = {}
    for entry in partitions:
        topic_id, index = keys.partition_of(entry.key)
        topic = by_id.get(topic_id) or before.topics_by_id.get(topic_id)
        # A deletion comes with that of the topic. A state without its topic can only be a bug of its writer.
        if entry.value is not None and topic is not None and topic_id not in deleted_ids:
            states.setdefault(topic_id, {})[index] = PartitionImage.decoded(entry.key, entry.value)
    moved: dict[str, tuple[int, ...]] = {}
    updated: dict[str, TopicImage | None] = {topic.name: None for topic in deleted}
    for topic_id, by_index in states.items():
        topic = by_id.get(topic_id) or before.topics_by_id[topic_id]
        members = list(topic.partitions)
        for index, state in by_index.items():
            if index < len(members):
                members[index] = state
        topic = topic._replace(partitions=tuple(members))
        if topic_id in by_id:
            changed[topic.name] = topic
        else:
            moved[topic.name] = tuple(sorted(by_index))
            updated[topic.name] = topic
    updated |= changed
    ids: dict[bytes, TopicImage | None] = dict.fromkeys(deleted_ids)
    ids |= {topic.id: topic for topic in updated.values() if topic is not None}
    return _Topics(
        _layered(before.topics).with_changes(updated),
        _layered(before.topics_by_id).with_changes(ids),
        tuple(changed.values()),
        tuple(deleted),
        moved,
    )


def _layered(mapping: Mapping[Any, Any]) -> Layered[Any, Any]:
    return mapping if isinstance(mapping, Layered) else Layered(mapping)


def _settings(before: Image, kind: str, entries: Iterable[Entry]) -> dict[str, Any]:
    """Return the changed field of the image."""
    if kind == "features":
        levels = {
            entry.key[len(keys.FEATURES) :]: _json(entry) for entry in entries if entry.key != keys.METADATA_VERSION
        }
        return {"features": _merged(before.features, levels)}
    if kind == "quotas":
        quotas = {
            keys.quota_of(entry.key): None if entry.value is None else keys.quota_values(entry.value)
            for entry in entries
        }
        return {"quotas": _merged(before.quotas, quotas)}
    if kind == "tokens":
        tokens = {
            entry.key[len(keys.TOKENS) :]: None if entry.value is None else DelegationToken.decoded(entry.value)
            for entry in entries
        }
        return {"tokens": _merged(before.tokens, tokens)}
    if kind == "acls":
        acls = {entry.key: None if entry.value is None else Acl.decoded(entry.value) for entry in entries}
        return {"acls": _merged(before.acls, acls)}
    credentials = {
        keys.scram_of(entry.key): None if entry.value is None else ScramCredential.decoded(entry.value)
        for entry in entries
    }
    return {"credentials": _merged(before.credentials, credentials)}


def _membership(before: Image, by_kind: Mapping[str, Iterable[Entry]]) -> dict[str, Any]:
    """Return the changed fields of the image: registrations, signs of life, live brokers, controller."""
    registrations: dict[int, BrokerImage | None] = {}
    for entry in by_kind.get("brokers", ()):
        node_id = int(entry.key[len(keys.BROKERS) :])
        value = entry.value
        registrations[node_id] = (
            None if value is None else BrokerImage.decoded(entry.key, node_id, value, entry.revision)
        )
    signs: dict[int, Liveness | None] = {}
    for entry in by_kind.get("live", ()):
        node_id = int(entry.key[len(keys.LIVE) :])
        signs[node_id] = None if entry.value is None else Liveness.decoded(entry.key, entry.value, entry.created)
    controller = before.controller
    for entry in by_kind.get("controller", ()):
        controller = None if entry.value is None else ControllerImage.decoded(entry.key, entry.value, entry.created)
    registered = _merged(before.registered, registrations)
    live = _merged(before.live, signs)
    brokers = {
        node_id: registered[node_id]
        for node_id in sorted(registered)
        if node_id in live and live[node_id].incarnation == registered[node_id].incarnation
    }
    return {
        "registered": registered,
        "live": live,
        "controller": controller,
        "controller_id": NO_LEADER if controller is None else controller.node_id,
        "brokers": brokers,
    }
