"""TLS of one listener: its context by the configs `ssl.*`, which is made again when they change or a file of a store is new.

New connections get the new certificate, open ones stay. A new certificate must have the subject and the alternative names
of the old one (ssl.allow.dn.changes, ssl.allow.san.changes); otherwise the old one stays, with a line in the log.

Files that a request names are read by a worker: a path may be on a mount that does not answer. While the broker starts they
are read at once.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.broker.security.listener_configs import ListenerValues
from ottla.environment import Environment, Worker
from ottla.environment.small_files import read_small_file
from ottla.environment.tls_serving import TlsListener
from ottla.environment.tls_session import TlsContext
from ottla.metadata.configs import InvalidConfig
from ottla.security.extra import MissingPackage
from ottla.security.tls.changes import IncompatibleCertificate, check_change
from ottla.security.tls.contexts import TlsError, TlsSettings, check_handshake, client_context, server_context
from ottla.security.tls.der import MalformedDer
from ottla.security.tls.key_cost import signs_slowly
from ottla.security.tls.stores import KeyMaterial, KeyStoreSettings, StoreError, TrustStoreSettings, load_key
from ottla.tasks.deferred import Answer, Deferred, awaitable
from ottla.tasks.periodic import PAUSED, Periodic
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.broker")
_LOOK_MS: Final = 5_000
"""Interval at which the files of stores are read again."""
_READING_MS: Final = 2_000
"""Time that a change of the configs waits for the files that it names."""

Read = Callable[[str], bytes]


def tls_settings(values: ListenerValues, *, has_sasl: bool = False) -> TlsSettings:
    """Return the TLS settings of a listener.

    has_sasl  the listener is one of SASL_SSL: as in Kafka, only its own ssl.client.auth counts, not that of all listeners
    """
    text = values.text
    client_auth = values.own_text("ssl.client.auth") if has_sasl else text("ssl.client.auth")
    return TlsSettings(
        KeyStoreSettings(
            text("ssl.keystore.type") or "JKS",
            text("ssl.keystore.location"),
            text("ssl.keystore.password"),
            text("ssl.key.password"),
            text("ssl.keystore.key"),
            text("ssl.keystore.certificate.chain"),
        ),
        TrustStoreSettings(
            text("ssl.truststore.type") or "JKS",
            text("ssl.truststore.location"),
            text("ssl.truststore.password"),
            text("ssl.truststore.certificates"),
        ),
        client_auth or "none",
        text("ssl.protocol") or "TLSv1.3",
        tuple(values.items_of("ssl.enabled.protocols")),
        tuple(values.items_of("ssl.cipher.suites")),
        text("ssl.endpoint.identification.algorithm") or "",
    )


class _Loaded(NamedTuple):
    """A context and what it was made of; `files` are the contents of the stores by path."""

    settings: TlsSettings
    context: TlsContext
    material: KeyMaterial
    is_slow: bool
    files: Mapping[str, bytes]


def _load(settings: TlsSettings, read: Read, *, serves_brokers: bool) -> _Loaded:
    """Make a context. Raises InvalidConfig.

    serves_brokers  brokers connect to the listener with the same settings: it is tried that they can, as Kafka does
    """
    files: dict[str, bytes] = {}

    def reading(path: str) -> bytes:
        files[path] = files.get(path) or read(path)
        return files[path]

    try:
        context = server_context(settings, reading)
        material = load_key(settings.key_store, reading)
        assert material is not None  # server_context would have raised
        if serves_brokers:
            check_handshake(context, client_context(settings, reading))
        return _Loaded(settings, context, material, signs_slowly(material.chain[0]), files)
    except (StoreError, TlsError) as cause:
        reason = f": {cause.reason}" if cause.reason else ""
        raise InvalidConfig(f"{cause}{reason}") from None
    except (MissingPackage, MalformedDer) as cause:
        raise InvalidConfig(str(cause)) from None


def peer_context(values: ListenerValues) -> TlsContext:
    """Return the context of this broker as a client of other brokers. Raises InvalidConfig."""
    try:
        return client_context(tls_settings(values), read_small_file)
    except (StoreError, TlsError) as cause:
        raise InvalidConfig(f"{cause}{f': {cause.reason}' if cause.reason else ''}") from None
    except MissingPackage as cause:
        raise InvalidConfig(str(cause)) from None


class ListenerTls:
    """TLS of one listener. Raises InvalidConfig.

    name    name of the listener
    values  returns the current configs of the listener
    """

    def __init__(
        self,
        name: str,
        values: Callable[[], ListenerValues],
        environment: Environment,
        tasks: Scheduler,
        *,
        has_sasl: bool,
        serves_brokers: bool,
    ) -> None:
        self._name = name
        self._values = values
        self._has_sasl = has_sasl
        self._serves_brokers = serves_brokers
        self._workers = environment.workers
        self._tasks = tasks
        self._contents: dict[str, bytes | OSError] = {}
        """Contents that a worker has read for the next change, by path."""
        self._reading = environment.workers.start("ottla-certificates")
        self._handshakes: Worker | None = None
        self._unusable: TlsSettings | None = None
        """Settings that could not be used, so that this is logged once while they are in the metadata."""
        self._loaded = self._load_at_start()
        self._refused: Mapping[str, bytes] = {}
        """Contents of files that could not be used, so that this is logged once."""
        self._looking = Periodic("reading of certificates", self._look, _LOOK_MS, environment.timers)
        if self._loaded.files:
            self._looking.run_in(_LOOK_MS)
        self.listener = TlsListener(lambda: self._loaded.context, self._worker, environment.timers)

    def _load_at_start(self) -> _Loaded:
        """Make the first context. Stores that a client has set in the metadata never prevent a start: if they cannot be used,
        those of the start values are. Raises InvalidConfig.
        """
        values = self._values()
        settings, static = (
            tls_settings(source, has_sasl=self._has_sasl) for source in (values, values.with_start_values())
        )
        self._warn_of_outdated_protocols(settings)
        try:
            return _load(settings, read_small_file, serves_brokers=self._serves_brokers)
        except InvalidConfig as cause:
            if settings == static:
                raise
            loaded = _load(static, read_small_file, serves_brokers=self._serves_brokers)
            self._unusable = settings
            _logger.error("listener %s ignores the stores in the metadata: %s", self._name, cause)
            return loaded

    def _warn_of_outdated_protocols(self, settings: TlsSettings) -> None:
        if settings.outdated_protocols:
            _logger.warning(
                "listener %s leaves out %s of ssl.enabled.protocols, which no client should need: remove it from there",
                self._name,
                ", ".join(settings.outdated_protocols),
            )

    def _worker(self) -> Worker | None:
        """Return the worker for handshakes if those of the current key take long."""
        if not self._loaded.is_slow:
            return None
        if self._handshakes is None:
            self._handshakes = self._workers.start("ottla-handshakes")
        return self._handshakes

    def prepare(self, values: ListenerValues) -> Answer[None]:
        """Read the files of new configs, for `check` and `apply`."""
        settings = tls_settings(values, has_sasl=self._has_sasl)
        return None if settings == self._loaded.settings else self._fetch(_files_of(settings))

    def _fetch(self, paths: Iterable[str]) -> Answer[None]:
        """Read files on a worker. One that is not read in time is an error, and stays one until it is read again."""
        files = tuple(paths)
        if not files:
            return None
        for path in files:
            self._contents[path] = TimeoutError(f"{path} cannot be read in {_READING_MS // 1000} s")
        answer: Deferred[None] = Deferred(self._tasks)

        def finish() -> None:
            if not answer.done:
                answer.complete(None)

        def read(contents: Mapping[str, bytes | OSError]) -> None:
            timer.cancel()
            if not answer.done:
                self._contents.update(contents)
                finish()

        timer = self._tasks.call_later(_READING_MS, finish)
        self._reading.run(lambda: {path: _content(path) for path in files}, read, finish)
        return answer

    def _content(self, path: str) -> bytes:
        content = self._contents.get(path)
        if content is None:
            raise OSError(f"{path} has not been read")
        if isinstance(content, OSError):
            raise content
        return content

    def check(self, values: ListenerValues) -> None:
        """Raise InvalidConfig if the listener could not go on with these configs, whose files are read (`prepare`)."""
        settings = tls_settings(values, has_sasl=self._has_sasl)
        if settings != self._loaded.settings:
            self._check_change(self._reload(settings), values)

    def _reload(self, settings: TlsSettings) -> _Loaded:
        return _load(settings, self._content, serves_brokers=self._serves_brokers)

    def _check_change(self, loaded: _Loaded, values: ListenerValues) -> None:
        try:
            check_change(
                self._loaded.material,
                loaded.material,
                allow_dn_changes=values.flag("ssl.allow.dn.changes"),
                allow_san_changes=values.flag("ssl.allow.san.changes"),
            )
        except (IncompatibleCertificate, MalformedDer) as cause:
            raise InvalidConfig(str(cause)) from None

    def apply(self) -> None:
        """Take over the current configs; what cannot be used is logged, and the old context stays."""
        settings = tls_settings(self._values(), has_sasl=self._has_sasl)
        if settings in (self._loaded.settings, self._unusable):
            return
        missing = [path for path in _files_of(settings) if path not in self._contents]
        self._tasks.background(self._fetch_and_take_over(missing), f"the certificate of listener {self._name}")

    async def _fetch_and_take_over(self, missing: list[str]) -> None:
        await awaitable(self._fetch(missing), self._tasks)
        self._take_over()

    def _take_over(self) -> None:
        values = self._values()
        settings = tls_settings(values, has_sasl=self._has_sasl)
        is_ignored = settings == self._unusable  # then a file of the settings in force has changed
        try:
            loaded = self._reload(self._loaded.settings if is_ignored else settings)
            self._check_change(loaded, values)
        except InvalidConfig as cause:
            self._unusable = settings
            _logger.error("listener %s keeps its certificate: %s", self._name, cause)
            return
        finally:
            self._contents.clear()
        self._loaded, self._unusable = loaded, self._unusable if is_ignored else None
        self._looking.run_in(_LOOK_MS)
        _logger.info("listener %s has a new TLS configuration, for connections from now on", self._name)

    def close(self) -> None:
        """End the timer and the workers."""
        self._looking.close()
        self._reading.close(cancel=True, wait=False)  # it may wait for a mount
        if self._handshakes is not None:
            self._handshakes.close(cancel=True)

    def _look(self) -> int:
        """Read the files of the stores again, on a worker."""
        paths = tuple(self._loaded.files)

        def read() -> Mapping[str, bytes] | None:
            try:
                return {path: read_small_file(path) for path in paths}
            except OSError:
                return None  # being replaced; it is read again

        self._reading.run(read, self._on_read, lambda: self._on_read(None))
        return PAUSED

    def _on_read(self, files: Mapping[str, bytes] | None) -> None:
        self._looking.run_in(_LOOK_MS)
        if files is not None and files != self._loaded.files and files != self._refused:
            self._refused = files
            self._contents.update(files)
            self._take_over()


def _files_of(settings: TlsSettings) -> list[str]:
    """Return the paths of the files of stores."""
    locations = (settings.key_store.location, settings.trust_store.location)
    return list(dict.fromkeys(filter(None, locations)))


def _content(path: str) -> bytes | OSError:
    try:
        return read_small_file(path)
    except OSError as cause:
        return cause
