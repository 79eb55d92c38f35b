"""A metadata store whose disk is slow or takes nothing: who waits, and who does not."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, KafkaError, NewTopic, Producer
from ottla.metadata.store.sqlite import SqliteStore
from ottla.protocol.errors import KAFKA_STORAGE_ERROR
from ottla.testing.embedded import EmbeddedBroker


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
        monkeypatch.setattr(SqliteStore, "change_now", disk.slow(SqliteStore.change_now))
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


def test_a_read_only_disk_is_a_storage_error_and_not_a_closed_connection(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        store: Any = broker.broker._store
        broker._call(lambda: store._db.execute("PRAGMA query_only=1"))
        with pytest.raises(KafkaError, match="readonly database") as refused:
            admin.create_topics([NewTopic("t", 1)], timeout=2).check()
        assert refused.value.code == KAFKA_STORAGE_ERROR
        broker._call(lambda: store._db.execute("PRAGMA query_only=0"))
        admin.create_topics([NewTopic("t", 1)]).check()
