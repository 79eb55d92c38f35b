"""Tests of `ottla console`."""

from typing import NamedTuple


class Broker(NamedTuple):
    """The broker of the tests: an embedded one, or that of `--broker`."""

    bootstrap_servers: str
