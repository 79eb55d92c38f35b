"""A metadata store whose disk is slow or takes nothing: who waits, and who does not."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, NewTopic, Producer
from ottla.metadata.store import Change
from ottla.metadata.store.sqlite import SqliteStore
from ottla.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicResult, CreateTopicsRequest
from ottla.testing.embedded import EmbeddedBroker
from tests.conformance.conftest import Wire


class Disk:
    """Holds back every commit of metadata until it is released."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.released = threading.Event()

    def slow(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def change_now(*args: Any, **fields: Any) -> Any:
            self.asked.set()
            assert self.released.wait(30)
            return change(*args, **fields)

        return change_now


def test_a_slow_commit_of_metadata_holds_back_no_other_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CreateTopics that waited for its flush to disk once held back a Produce to another topic for seconds."""
    disk = Disk()
    with EmbeddedBroker(data_dir=tmp_path) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("other", 1)]).check()
        monkeypatch.setattr(SqliteStore, "_write", disk.slow(SqliteStore._write))
        created: list[object] = []

        def create() -> None:
            with Admin(bootstrap_servers=broker.bootstrap_servers) as another:
                created.append(another.create_topics([NewTopic("slow", 3)]).check())

        thread = threading.Thread(target=create)
        thread.start()
        assert disk.asked.wait(10)
        with Producer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False) as producer:
            producer.produce("other", b"v")
            assert producer.flush(10) == 0
            assert not created
        disk.released.set()
        thread.join(10)
        assert created
        assert set(admin.list_topics()) >= {"other", "slow"}


def test_the_topics_of_one_request_are_one_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change is a flush to disk: three topics took three."""
    changes: list[set[str]] = []
    write = SqliteStore._write

    def counted(store: SqliteStore, change: Change) -> Any:
        changes.append(set(change.put))
        return write(store, change)

    with EmbeddedBroker(data_dir=tmp_path) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        monkeypatch.setattr(SqliteStore, "_write", counted)
        admin.create_topics([NewTopic(name, 2) for name in "abc"]).check()
        assert changes == [{"/topics/a", "/topics/b", "/topics/c"}]
        admin.delete_topics(["a", "b"]).check()
        assert len(changes) == 2


def test_a_read_only_disk_is_a_storage_error_and_not_a_closed_connection(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        wire = Wire(broker.address, is_kafka=False)
        store: Any = broker.server._storage.metadata

        def create() -> CreatableTopicResult:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            result: CreatableTopicResult = wire.send(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics[0]
            return result

        broker._call(lambda: store._db.execute("PRAGMA query_only=1"))
        refused = create()
        assert refused.error_code == KAFKA_STORAGE_ERROR
        assert "attempt to write a readonly database" in (refused.error_message or "")
        broker._call(lambda: store._db.execute("PRAGMA query_only=0"))
        assert create().error_code == NONE
        wire.close()
