"""Files of a broker are readable by its own user only: metadata has passwords and SCRAM keys, logs have records."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.log.backup import copy_log_directory
from ottla.metadata.offline.backup import copy_database
from ottla.testing import EmbeddedBroker


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def exposed(directory: Path) -> list[str]:
    """Return files and directories at and below `directory` with any permission for others."""
    return [
        f"{path.relative_to(directory.parent)} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in (directory, *directory.rglob("*"))
        if path.stat().st_mode & 0o077
    ]


def create_topic(broker: EmbeddedBroker) -> None:
    from ottla import Admin, Producer

    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(["t"]).check()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.produce("t", b"v")


def test_data_directory_and_backups_are_private(tmp_path: Path) -> None:
    data, copy = tmp_path / "new" / "data", tmp_path / "copies" / "copy"
    with EmbeddedBroker(data_dir=data) as broker:
        create_topic(broker)
        assert exposed(data) == []
        copy.parent.mkdir()
        copy_log_directory(data, copy, lambda name, size: None)
        copy_database(data / "metadata.db", copy / "metadata.db")
    assert exposed(data) == []
    assert {path.name for path in copy.iterdir()} >= {"metadata.db", "meta.properties", "t-0"}
    assert exposed(copy) == []


def test_backup_of_an_open_directory_is_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with EmbeddedBroker(data_dir=data) as broker:
        create_topic(broker)
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    copy_log_directory(data, tmp_path / "copy", lambda name, size: None)
    assert exposed(tmp_path / "copy") == []


def test_more_open_files_are_named_in_one_warning_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    with EmbeddedBroker(data_dir=data):
        pass
    assert "have access" not in caplog.text
    data.chmod(0o750)
    (data / "metadata.db").chmod(0o644)
    with caplog.at_level(logging.WARNING), EmbeddedBroker(data_dir=data):
        pass
    assert [message for message in caplog.messages if "access" in message] == [
        f"other users of this machine may have access to stored passwords and records: {data} (0750), "
        f"{data}/metadata.db (0644); run chmod -R go-rwx on them"
    ]
