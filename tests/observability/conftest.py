"""A served broker under load, and its metrics."""

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crash.conftest import Process
from tests.observability.load import load


class Served(NamedTuple):
    """Broker with an HTTP address."""

    process: Process
    base: str

    def get(self, path: str = "/metrics") -> str:
        """Return the body of a page. Raises HTTPError."""
        with urllib.request.urlopen(self.base + path, timeout=30) as answer:
            body: bytes = answer.read()
        return body.decode()


def serve(directory: Path, *options: str) -> Served:
    """Start a broker with metrics."""
    process = Process(directory, "--metrics", "127.0.0.1:0", "-o", "group.initial.rebalance.delay.ms=0", *options)
    where = process.says().removeprefix("serving metrics at ").strip()
    return Served(process, where.removesuffix("/metrics"))


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker under load: its groups, sessions and waiting requests exist during the tests."""
    broker = serve(tmp_path_factory.mktemp("served"))
    try:
        with load(broker.process.bootstrap_servers):
            time.sleep(0.5)  # the fetches of the consumers wait then
            yield broker
    finally:
        broker.process.stop()


@pytest.fixture(scope="session")
def exposition(served: Served) -> str:
    """The metrics of the broker under load."""
    return served.get()
