"""The commands of docs/cluster.md, over a real etcd."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.conftest import Process
from tests.docs.test_commands import ROOT
from tests.etcd_server import EtcdServer, running

PAGE = ROOT / "docs" / "cluster.md"


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with running(tmp_path / "etcd") as server:
        yield server


def commands() -> list[list[str]]:
    text = PAGE.read_text(encoding="utf-8")
    return [shlex.split(line.partition("#")[0])[1:] for line in text.splitlines() if re.match(r"    ottla ", line)]


def test_a_cluster_as_the_docs_say(tmp_path: Path, etcd: EtcdServer) -> None:
    url = etcd.url()
    ports: dict[str, int] = {}
    processes: list[Process] = []
    serve = [words for words in commands() if words[0] == "serve"]
    others = [words for words in commands() if words[0] in ("topics", "reassign-partitions")]
    assert (len(serve), len(others)) == (3, 6)
    for content, name in re.findall(r"^    echo '(.*)' > (\S+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        (tmp_path / name).write_text(content, encoding="utf-8")
    try:
        for words in serve:
            options = dict(zip(words[1::2], words[2::2], strict=True))
            process = Process(tmp_path / options["--data-dir"], "--cluster", url, "-o", options["-o"])
            processes.append(process)
            ports[options["--listen"]] = process.port
        for words in others:
            replaced = [f"127.0.0.1:{ports[word]}" if word in ports else word for word in words]
            done = subprocess.run(
                [sys.executable, "-m", "ottla", *replaced],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            if "--describe" in words:
                assert sorted(re.findall(r"Leader: (\d)", done.stdout)) == ["1", "1", "2", "2", "3", "3"]
    finally:
        for process in processes:
            process.stop()


def test_a_migration_as_the_docs_say(tmp_path: Path, etcd: EtcdServer) -> None:
    Process(tmp_path / "data1").stop()
    (words,) = [words for words in commands() if words[:2] == ["storage", "migrate"]]
    words[words.index("--to") + 1] = etcd.url()
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "serve with: ottla serve --data-dir data1" in done.stdout
