"""Tests of `ottla console`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Broker(NamedTuple):
    """Broker or cluster of a test.

    configs   configs of a client for its security
    replicas  number of replicas of topics
    """

    bootstrap_servers: str
    configs: Mapping[str, str] = MappingProxyType({})
    replicas: int = 1

    @property
    def client(self) -> dict[str, str]:
        """Configs of a client."""
        return {"bootstrap.servers": self.bootstrap_servers, **self.configs}
