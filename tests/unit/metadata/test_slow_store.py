"""Changes of metadata on a store that answers later, or cannot write: order, plans on the newest image, errors."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.coordination.producer_ids import ProducerIds
from ottla.coordinators.readiness import NotReady
from ottla.metadata import changes
from ottla.metadata.image import Image
from ottla.metadata.metadata import PRODUCER_ID_BLOCK, Metadata
from ottla.metadata.plans.topics import RequestedTopic, TopicBatch
from ottla.metadata.refusal import CHANGED, ChangeResult
from ottla.metadata.store import Change
from ottla.metadata.store.sqlite import SqliteStore
from ottla.protocol.errors import KAFKA_STORAGE_ERROR, TOPIC_ALREADY_EXISTS
from ottla.tasks.deferred import Deferred
from tests.queues import immediate_queue, unexpected

from .test_metadata import metadata_on


class Later:
    """A worker that does its work when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], object], Callable[[], object]]] = []

    def run(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[], object]) -> None:
        self.waiting.append((work, done, failed))

    def close(self, *, cancel: bool = False, wait: bool = True) -> None:
        del cancel, wait

    def do_one(self) -> None:
        work, done, failed = self.waiting.pop(0)
        try:
            result = work()
        except ArithmeticError:
            failed()
        else:
            done(result)


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def store(tmp_path: Path, later: Later) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "metadata.db", later, immediate_queue())
    opened.initialize("cluster")
    yield opened
    opened.close()


@pytest.fixture
def metadata(store: SqliteStore) -> Metadata:
    return metadata_on(store)


def create(metadata: Metadata, name: str) -> list[ChangeResult]:
    """Ask for a topic; the result is put into the list when it comes."""

    def plan(image: Image) -> Change:
        topic = metadata.plans.plan(RequestedTopic(name, 1, 1, {}, {}), TopicBatch())
        ((_, change),) = changes.create_topics(image, [topic], 100)
        return change

    heard: list[ChangeResult] = []
    metadata.tasks.start(metadata.result_of(plan)).then(heard.append, unexpected)
    return heard


def test_a_topic_is_there_when_it_is_on_disk_and_not_before(metadata: Metadata, later: Later) -> None:
    heard = create(metadata, "t")
    assert (heard, list(metadata.image.topics)) == ([], [])
    later.do_one()
    assert (heard, list(metadata.image.topics)) == ([CHANGED], ["t"])


def test_one_of_two_concurrent_creations_of_a_topic_succeeds(metadata: Metadata, later: Later) -> None:
    first, second, third = create(metadata, "t"), create(metadata, "t"), create(metadata, "u")
    assert len(later.waiting) == 1, "the second change waits for the first"
    later.do_one()
    assert (first, second, third) == ([CHANGED], [], [])
    later.do_one()
    assert ([result.error_code for result in second], third) == ([TOPIC_ALREADY_EXISTS], [])
    later.do_one()
    assert third == [CHANGED]


def test_two_config_changes_at_once_keep_both(metadata: Metadata, later: Later) -> None:
    create(metadata, "t")
    later.do_one()

    def alter(name: str, text: str) -> None:
        def plan(image: Image) -> Change:
            topic = image.topics["t"]
            return changes.replace_topics(image, [topic._replace(configs={**topic.configs, name: text})])

        metadata.tasks.background(metadata.apply(plan), "alteration")

    alter("retention.ms", "5")
    alter("segment.ms", "7")
    for _ in range(3):  # the second one is planned again: the first has changed what it was planned on
        later.do_one()
    assert metadata.image.topics["t"].configs == {"retention.ms": "5", "segment.ms": "7"}


def test_a_disk_that_takes_nothing_is_a_storage_error_in_one_line(
    metadata: Metadata, store: SqliteStore, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    store._db.execute("PRAGMA query_only=1")
    heard = create(metadata, "t")
    later.do_one()
    (result,) = heard
    assert result.error_code == KAFKA_STORAGE_ERROR
    assert "metadata.db: attempt to write a readonly database" in (result.error_message or "")
    assert (list(metadata.image.topics), len(caplog.records)) == ([], 1)
    assert "\n" not in caplog.records[0].getMessage()
    store._db.execute("PRAGMA query_only=0")
    heard = create(metadata, "t")
    later.do_one()
    assert heard == [CHANGED]


def test_a_bug_is_not_taken_for_a_full_disk(store: SqliteStore) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        store.change_now(Change(put={"/a": None}))  # type: ignore[dict-item]


def test_producer_ids_are_fetched_ahead(metadata: Metadata, later: Later) -> None:
    ids = ProducerIds(metadata.producer_id_block, immediate_queue())
    with pytest.raises(NotReady):
        ids.take()
    waiting = ids.reserve()
    assert isinstance(waiting, Deferred)
    later.do_one()
    assert waiting.done
    taken = [ids.take() for _ in range(PRODUCER_ID_BLOCK // 2)]
    assert len(later.waiting) == 1, "the next block is reserved while half of this one is left"
    later.do_one()
    taken += [ids.take() for _ in range(PRODUCER_ID_BLOCK)]
    assert taken == list(range(PRODUCER_ID_BLOCK * 3 // 2))


def test_no_producer_ids_from_a_disk_that_takes_nothing(metadata: Metadata, store: SqliteStore, later: Later) -> None:
    store._db.execute("PRAGMA query_only=1")
    ids = ProducerIds(metadata.producer_id_block, immediate_queue())
    answer = ids.reserve()
    assert isinstance(answer, Deferred)
    heard: list[bool] = []
    answer.then(heard.append, unexpected)
    later.do_one()
    assert heard == [False]
    with pytest.raises(NotReady):
        ids.take()
