"""Shared base of the clients: metadata objects, new credentials, and events of the network, as in librdkafka's handles."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from ottla.addresses import address_text
from ottla.client.admin.core import AdminCore
from ottla.client.errors import KafkaError as ClientError
from ottla.client.waiting import Blocking
from ottla.compat.librdkafka.errors import exception, prefix_error
from ottla.compat.librdkafka.events import Events, ThrottleEvent
from ottla.compat.librdkafka.metadata import ClusterMetadata, bounded, fetched
from ottla.net.connection import Link
from ottla.net.password_credentials import PasswordCredentials

FOREVER_MS: Final = 2**40
_CLOSED: Final = "Handle has been closed"
_NO_CLUSTER_ID: Final = (
    "Failed to retrieve cluster id: Local: Timed out. The broker must support KIP-78 (>= 0.10.1) for the cluster id to be "
    "available."
)


def milliseconds(timeout: float) -> int:
    """Convert a timeout in seconds; a negative one is no limit. Raises TypeError."""
    if not isinstance(timeout, int | float):
        raise TypeError(f"must be real number, not {type(timeout).__name__}")
    return FOREVER_MS if timeout < 0 else min(int(timeout * 1000), FOREVER_MS)


class Handle(Blocking):
    """Client of Ottla with the calls that all handles of librdkafka have. A base class before the one of the client."""

    def __del__(self) -> None:
        """End in the background, without a warning: programs of confluent-kafka close no producer."""
        if not (self._released or sys.is_finalizing() or self._thread.has_ended):
            self._drop()

    def cluster(self, topic: str | None, timeout_ms: int) -> ClusterMetadata:
        """Return the metadata of the cluster, or of one topic."""
        return self._run(fetched(self._core, topic, timeout_ms))

    def cluster_id(self, timeout_ms: int) -> str | None:
        """Return the id of the cluster."""
        return self._run(bounded(self._core, AdminCore(self._core).describe_cluster(), timeout_ms)).cluster_id

    def brokers(self) -> list[tuple[int, str, int]]:
        """Return node, host and port of the known brokers."""
        return [(node, host, port) for node, (host, port) in self._core.network.brokers.items()]

    def set_credentials(self, username: str, password: str) -> None:
        """Log in as this user from the next login of a connection on: PLAIN and SCRAM, no effect without. Raises TypeError."""
        for place, text in enumerate((username, password), 1):
            if not isinstance(text, str):
                raise TypeError(f"argument {place} must be str, not {text if text is None else type(text).__name__}")
        credentials = self._core.network.settings.credentials
        if isinstance(credentials, PasswordCredentials):
            self._call(lambda: credentials.replace(username, password))

    def report_to(self, events: Events) -> None:
        """Have polls call throttle_cb with the throttle times of responses, and error_cb with failed connections and logins.

        A refused login is tried again, as by librdkafka: what waits for it does so until its own timeout.
        """
        network = self._core.network

        def on_throttle(link: Link, throttle_ms: int) -> None:
            nodes = (node for node, address in network.brokers.items() if address == link.address)
            node = link.node if link.node >= 0 else next(nodes, -1)
            events.report_throttle(ThrottleEvent(address_text(*link.address), node, throttle_ms / 1000))

        def on_failure(error: ClientError) -> None:
            events.report(error)
            addresses = set(network.brokers.values()) or set(self.config.bootstrap_servers)
            if addresses <= network.failures.keys():
                events.all_down(len(addresses))

        def listen() -> None:
            network.on_failure.append(on_failure)
            if events.has("throttle_cb"):
                network.on_throttle.append(on_throttle)

        self._call(listen)


class Client:
    """Calls that clients of librdkafka have in common.

    close    ends the client; an admin client has none
    _handle  the client of Ottla
    """

    close: Callable[[], object]
    _handle: Handle

    def _check(self, message: str = "") -> None:
        """Raise RuntimeError if the client is closed, with a message other than its usual one if it is given."""
        raise NotImplementedError

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the brokers, and all topics or one. Raises KafkaException."""
        self._check(_CLOSED)
        try:
            return self._handle.cluster(topic, milliseconds(timeout))
        except ClientError as error:
            raise prefix_error("Failed to get metadata: ", error) from None

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the id of the cluster. Raises KafkaException (_TIMED_OUT) if it did not come in time."""
        self._check(_CLOSED)
        try:
            return self._handle.cluster_id(milliseconds(timeout))
        except ClientError:
            raise exception("_TIMED_OUT", _NO_CLUSTER_ID) from None

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these credentials whenever a connection logs in from now on (PLAIN, SCRAM). Raises TypeError."""
        self._check(_CLOSED)
        self._handle.set_credentials(username, password)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
