"""Changes of the metadata, planned on an image and bound to it: pure functions, without the store.

A change compares every key that it writes, and what it relies on, with the revisions in the image on which it was planned. If
another broker has written one of them since, the store refuses the change, however long the plan has waited.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from ottla.metadata.configs.alteration import BROKER
from ottla.metadata.image import Image, PartitionImage, TopicImage
from ottla.metadata.image.stored import topic_entries
from ottla.metadata.refusal import Refused
from ottla.metadata.store import Change, keys
from ottla.protocol.errors import UNKNOWN_TOPIC_OR_PARTITION, error
from ottla.security.acls import Acl
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.quotas import Entity
from ottla.security.scram import ScramCredential

T = TypeVar("T")
_RECORDS_OF_PART: Final = 250
"""Most records of a change that may as well be several: it is planned, written and applied within some milliseconds."""
_TOPICS_OF_PART: Final = 500
PlacedState = tuple[TopicImage, int, PartitionImage]
"""Topic, index and new state of a partition."""


def create_topics(
    image: Image, topics: Sequence[TopicImage], largest: int
) -> Iterator[tuple[Sequence[TopicImage], Change]]:
    """Yield the changes that create planned topics, each with its topics; all in one if the store takes them.

    largest  maximum number of puts in one change
    """
    for chunk in _chunks(topics, largest):
        put: dict[str, bytes] = {}
        expect: dict[str, int] = {}
        for topic in chunk:
            expect[keys.TOPICS + topic.name] = 0
            put |= topic_entries(topic)
        yield chunk, Change(expect, _live_replicas(image, chunk), put=put)


def _live_replicas(image: Image, topics: Sequence[TopicImage]) -> dict[str, int]:
    """Return the comparisons that every replica of new partitions is still live: a new partition has all in sync.

    A single broker has no sign of life in the store.
    """
    if not image.live:
        return {}
    nodes = {node for topic in topics for partition in topic.partitions for node in partition.isr}
    return {key: image.created_of(key) for key in map(keys.live_key, sorted(nodes))}


def replace_topics(image: Image, topics: Iterable[TopicImage]) -> Change:
    """Replace the configs and the assignment of existing topics, and put the states of added partitions that need a key.

    Raises Refused (UNKNOWN_TOPIC_OR_PARTITION) if one does not exist in the image.
    """
    put: dict[str, bytes] = {}
    added: list[TopicImage] = []
    for topic in topics:
        current = image.topics.get(topic.name)
        if current is None or current.id != topic.id:
            raise unknown_topic()
        put |= topic_entries(topic, len(current.partitions))
        added.append(topic._replace(partitions=topic.partitions[len(current.partitions) :]))
    return Change({key: image.revision_of(key) for key in put}, _live_replicas(image, added), put=put)


def delete_topics(
    image: Image, topics: Sequence[TopicImage], largest: int
) -> Iterator[tuple[Sequence[TopicImage], Change]]:
    """Yield the changes that delete topics with the states of their partitions, each with its topics."""
    for chunk in _chunks(topics, max(largest // 2, 1)):
        names = [keys.TOPICS + topic.name for topic in chunk]
        states = [keys.partitions_key(topic.id) for topic in chunk]
        yield chunk, Change({key: image.revision_of(key) for key in names}, delete=names, delete_under=states)


def delete_left(image: Image, topics: Iterable[TopicImage], largest: int) -> Iterator[Change]:
    """Yield the changes that delete those of the topics that still exist."""
    left = [topic for topic in topics if topic.id in image.topics_by_id]
    return (change for _, change in delete_topics(image, left, largest))


def partition_states(image: Image, states: Iterable[PlacedState], created: Mapping[str, int] | None = None) -> Change:
    """Replace states of partitions.

    created  further comparisons, see `Change.created`

    The topics are compared by their creation: otherwise a state could be written after its topic was deleted.
    """
    put: dict[str, bytes] = {}
    topics: dict[str, int] = {}
    for topic, index, state in states:
        put[keys.partition_key(topic.id, index)] = state.encoded()
        topic_key = keys.TOPICS + topic.name
        topics[topic_key] = image.created_of(topic_key)
    return Change({key: image.revision_of(key) for key in put}, {**topics, **(created or {})}, put=put)


def chunks_of_states(
    image: Image, states: Sequence[PlacedState], largest: int
) -> Iterator[tuple[Sequence[PlacedState], Change]]:
    """Yield the changes that replace states of partitions, in several if the store demands it, each with its states."""
    size = max(1, min(largest // 2, len(states)))  # each is compared with its topic, too
    for first in range(0, len(states), size):
        chunk = states[first : first + size]
        yield chunk, partition_states(image, chunk)


def assign_directory(image: Image, topic_id: bytes, index: int, node_id: int, directory_id: bytes) -> Change:
    """Record which log directory of a broker a partition's replica is in (KIP-858).

    Raises Refused (UNKNOWN_TOPIC_OR_PARTITION) if the topic does not exist any more.
    """
    topic = image.topics_by_id.get(topic_id)
    if topic is None or node_id not in topic.partitions[index].replicas:
        raise unknown_topic()
    return partition_states(image, [(topic, index, topic.partitions[index].assigned(node_id, directory_id))])


def unregister(image: Image, node_id: int) -> Change:
    """Remove the registration of a broker that is not live."""
    key = keys.broker_key(node_id)
    return Change({key: image.revision_of(key)}, {keys.live_key(node_id): 0}, delete=[key])


def configure(image: Image, kind: int, name: str, texts: Mapping[str, str]) -> Change:
    """Replace the configs of a broker ("" for all of them), group or client-metrics subscription by `texts`."""
    key = keys.config_key(kind, name)
    return _written(image, {key: keys.compact(dict(texts)) if texts else None})


def set_quotas(image: Image, changed: Mapping[Entity, Mapping[str, float]], largest: int) -> Iterator[Change]:
    """Yield the changes that replace the quotas of each entity; an empty mapping removes all of them."""
    for entities in _parts(list(changed), largest):
        values = {entity: changed[entity] for entity in entities}
        yield _written(
            image,
            {
                keys.quota_key(entity): keys.compact(dict(quotas)) if quotas else None
                for entity, quotas in values.items()
            },
        )


def set_features(
    image: Image, levels: Mapping[str, int], configs: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> Change:
    """Finalize feature levels; features that are not named keep their levels.

    configs  configs of brokers that are replaced in the same change, by node id as text, "" for all brokers
    """
    values: dict[str, bytes | None] = {**keys.feature_levels(levels)}
    for name, texts in configs.items():
        values[keys.config_key(BROKER, name)] = keys.compact(dict(texts)) if texts else None
    return _written(image, values)


def set_credentials(
    image: Image, changed: Mapping[tuple[str, int], ScramCredential | None], largest: int
) -> Iterator[tuple[Sequence[tuple[str, int]], Change]]:
    """Yield the changes that set credentials by user and mechanism, each with its users; None removes one."""
    for users in _parts(list(changed), largest):
        credentials = {user: changed[user] for user in users}
        yield (
            users,
            _written(
                image,
                {keys.scram_key(*user): made and made.encoded() for user, made in credentials.items()},
            ),
        )


def set_tokens(image: Image, changed: Mapping[str, DelegationToken | None]) -> Change:
    """Set delegation tokens by id; None removes one."""
    return _written(
        image,
        {keys.TOKENS + token_id: None if token is None else token.encoded() for token_id, token in changed.items()},
    )


def is_missing(image: Image, acl: Acl) -> bool:
    """Return whether the image lacks an ACL."""
    return keys.acl_key(acl) not in image.acls


def set_acls(image: Image, added: Iterable[Acl], removed: Iterable[Acl], largest: int) -> Iterator[Change]:
    """Yield the changes that add and remove ACLs, in several if the store demands it.

    Those that are there already, or are not, are left out.
    """
    for part in _parts(list(dict.fromkeys(added)), largest):
        encoded = {keys.acl_key(acl): acl.encoded() for acl in part if is_missing(image, acl)}
        yield _written(image, encoded)
    for part in _parts(list(dict.fromkeys(removed)), largest):
        yield _written(image, {keys.acl_key(acl): None for acl in part if not is_missing(image, acl)})


def _written(image: Image, values: Mapping[str, bytes | None]) -> Change:
    """Put keys, and delete those whose value is None, if no other broker has changed them since the image."""
    put = {key: value for key, value in values.items() if value is not None}
    delete = [key for key, value in values.items() if value is None]
    return Change({key: image.revision_of(key) for key in values}, put=put, delete=delete)


def _parts(rows: Sequence[T], largest: int) -> Iterator[Sequence[T]]:
    """Yield rows in parts that make a change each; without rows one empty part."""
    size = min(largest, _RECORDS_OF_PART)
    for first in range(0, max(len(rows), 1), size):
        yield rows[first : first + size]


def _chunks(topics: Sequence[TopicImage], largest: int) -> list[list[TopicImage]]:
    """Split topics so that the puts of each part are at most `largest`; a topic with more is a part of its own."""
    largest = min(largest, _TOPICS_OF_PART)
    chunks: list[list[TopicImage]] = []
    room = 0
    for topic in topics:
        size = 1 + sum(not topic.has_default(partition) for partition in topic.partitions)
        if not chunks or size > room:
            chunks.append([])
            room = largest
        chunks[-1].append(topic)
        room -= size
    return chunks


def unknown_topic() -> Refused:
    """Return the error for a topic that does not exist any more."""
    return Refused(UNKNOWN_TOPIC_OR_PARTITION, error(UNKNOWN_TOPIC_OR_PARTITION).message)
