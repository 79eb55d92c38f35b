"""Metadata store in etcd, as named by a URL on the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.broker.lifecycle import CannotStart
from ottla.environment import Environment
from ottla.environment.tls_session import TlsContext
from ottla.environment.tls_transport import TlsTransport
from ottla.extras import install_command
from ottla.metadata.store import MetadataStore
from ottla.security.extra import MissingPackage
from ottla.security.tls.contexts import TlsError, TlsSettings, client_context
from ottla.security.tls.stores import PEM, KeyStoreSettings, StoreError, TrustStoreSettings
from ottla.tasks.scheduler import Scheduler

if TYPE_CHECKING:
    from ottla.metadata.store.etcd.url import EtcdTls


def etcd_store(text: str) -> Callable[[Environment, Scheduler], MetadataStore]:
    """Return the function that opens the metadata store at the URL `text`. Raises CannotStart, UsageError."""
    try:
        from ottla.metadata.store.etcd.store import EtcdMetadataStore
        from ottla.metadata.store.etcd.url import parse
    except ImportError as missing:
        raise CannotStart(f"etcd needs {missing.name}: {install_command('cluster')}") from None
    try:
        url = parse(text)
    except ValueError as cause:
        raise click.UsageError(str(cause)) from None

    context = None if url.tls is None else _tls_context(url.tls)

    def open_store(environment: Environment, tasks: Scheduler) -> MetadataStore:
        transport = environment.transport if context is None else TlsTransport(environment.transport, lambda: context)
        return EtcdMetadataStore(url, tasks, transport)

    return open_store


def _tls_context(tls: "EtcdTls") -> TlsContext:
    """Return the TLS context for connections to etcd. Raises CannotStart."""
    key_store, trust_store = KeyStoreSettings(), TrustStoreSettings()
    try:
        if tls.cert is not None and tls.key is not None:
            key, chain = Path(tls.key).read_text(encoding="utf-8"), Path(tls.cert).read_text(encoding="utf-8")
            key_store = KeyStoreSettings(PEM, key=key, chain=chain)
        if tls.cacert is not None:
            trust_store = TrustStoreSettings(PEM, tls.cacert)
        return client_context(TlsSettings(key_store, trust_store), lambda path: Path(path).read_bytes())
    except OSError as cause:
        raise CannotStart(f"TLS of etcd: cannot read {cause.filename}: {cause.strerror}") from None
    except (StoreError, TlsError) as cause:
        raise CannotStart(f"TLS of etcd: {cause}{f': {cause.reason}' if cause.reason else ''}") from None
    except MissingPackage as cause:
        raise CannotStart(f"TLS of etcd: {cause}") from None
