"""A real etcd for the tests of metadata stores."""

from collections.abc import Iterator

import pytest

from tests.etcd_server import EtcdServer, running


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd that the tests of one process share, each under its own prefix."""
    with running(tmp_path_factory.mktemp("etcd")) as server:
        yield server
