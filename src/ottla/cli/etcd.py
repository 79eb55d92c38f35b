"""Metadata store in etcd, as named by a URL on the command line."""

from collections.abc import Callable

import click

from ottla.broker.lifecycle import CannotStart
from ottla.environment import Environment
from ottla.metadata.store import MetadataStore


def etcd_store(text: str) -> Callable[[Environment], MetadataStore]:
    """Return the function that opens the metadata store at the URL `text`. Raises CannotStart, UsageError."""
    try:
        from ottla.metadata.store.etcd.store import EtcdMetadataStore
        from ottla.metadata.store.etcd.url import parse
    except ImportError as missing:
        raise CannotStart(f"etcd needs {missing.name}: pip install 'ottla[cluster]'") from None
    try:
        url = parse(text)
    except ValueError as cause:
        raise click.UsageError(str(cause)) from None

    def open_store(environment: Environment) -> MetadataStore:
        return EtcdMetadataStore(url, environment.clock, environment.timers, environment.transport)

    return open_store
