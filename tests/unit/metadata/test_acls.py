"""ACLs in the metadata store: more of them than one change may hold."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ottla.metadata import changes
from ottla.metadata.image import BrokerImage
from ottla.metadata.image.deltas import image_from
from ottla.metadata.metadata import Metadata
from ottla.metadata.store import Change, ChangeOutcome
from ottla.metadata.store.sqlite import SqliteStore
from ottla.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from ottla.security.acls import ALLOW, LITERAL, Acl
from ottla.tasks.deferred import Answer, Deferred
from tests.queues import immediate_queue
from tests.unit.metadata.followed import follow

MANY = [Acl(2, LITERAL, f"t{number}", "User:alice", "*", 3, ALLOW) for number in range(10)]


class SmallChanges(SqliteStore):
    """A store that takes four keys a change, and fails from one of the changes on."""

    largest_change = 4  # type: ignore[misc]
    sizes: list[tuple[int, int]]
    fails_from: int = 1 << 30

    def change(self, change: Change) -> Answer[ChangeOutcome]:
        """See `MetadataStore.change`."""
        self.sizes.append((len(change.put), len(change.delete)))
        if len(self.sizes) > self.fails_from:
            return ChangeOutcome(0, error="the store is full")
        return super().change(change)


@pytest.fixture
def store(tmp_path: Path) -> SmallChanges:
    made = SmallChanges(tmp_path / "metadata.db")
    made.sizes = []
    made.initialize("cluster")
    return made


def metadata_on(store: SmallChanges) -> Metadata:
    nothing: Any = None
    single = BrokerImage(1, "", -1, None)
    return follow(
        Metadata(
            store,
            store.load(),
            random=nothing,
            tasks=immediate_queue(),
            default_partitions=lambda: 1,
            default_replicas=lambda: 1,
            single=single,
        )
    )


def set_acls(metadata: Metadata, added: Iterable[Acl], removed: Iterable[Acl] = ()) -> Any:
    """Add and remove ACLs; return the result."""
    plan = metadata.apply_all(lambda image, largest: changes.set_acls(image, added, removed, largest))
    return metadata.tasks.start(plan).result()


def code_of(answer: Any) -> int:
    assert not isinstance(answer, Deferred)
    return int(answer.error_code)


def acls_of(metadata: Metadata) -> set[Acl]:
    return set(metadata.image.acls.values())


def test_many_acls_take_several_changes(store: SmallChanges) -> None:
    metadata = metadata_on(store)
    assert code_of(set_acls(metadata, MANY)) == NONE
    assert store.sizes == [(4, 0), (4, 0), (2, 0)]
    assert acls_of(metadata) == set(MANY)
    assert set(image_from(store.load()).acls.values()) == set(MANY)
    store.sizes.clear()
    assert code_of(set_acls(metadata, (), MANY[:9])) == NONE
    assert store.sizes == [(0, 4), (0, 4), (0, 1)]
    assert acls_of(metadata) == {MANY[9]}
    store.close()


def test_acls_that_are_there_are_skipped(store: SmallChanges) -> None:
    metadata = metadata_on(store)
    set_acls(metadata, MANY[:5])
    store.sizes.clear()
    assert code_of(set_acls(metadata, MANY[:8])) == NONE
    assert code_of(set_acls(metadata, MANY[:8])) == NONE
    assert code_of(set_acls(metadata, (), MANY[8:])) == NONE
    assert store.sizes == [(3, 0)]
    store.close()


def test_an_acl_that_is_added_and_removed_is_removed(store: SmallChanges) -> None:
    metadata = metadata_on(store)
    set_acls(metadata, MANY[:1])
    assert code_of(set_acls(metadata, MANY[:2], MANY[:1])) == NONE
    assert acls_of(metadata) == {MANY[1]}
    store.close()


def test_a_failed_change_is_reported(store: SmallChanges) -> None:
    """Changes that were written before it stay: each ACL is a change of its own in Kafka, too."""
    metadata = metadata_on(store)
    store.fails_from = 1
    assert code_of(set_acls(metadata, MANY)) == KAFKA_STORAGE_ERROR
    assert acls_of(metadata) == set(MANY[:4])
    store.close()
