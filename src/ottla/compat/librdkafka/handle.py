"""Shared base of the clients: metadata objects, new credentials, and events of the network, as in librdkafka's handles."""

import sys

from ottla.addresses import address_text
from ottla.client.admin.core import AdminCore
from ottla.client.waiting import Blocking
from ottla.compat.librdkafka.events import Events, ThrottleEvent
from ottla.compat.librdkafka.metadata import ClusterMetadata, bounded, fetched
from ottla.net.connection import Link
from ottla.net.password_credentials import PasswordCredentials


class Handle(Blocking):
    """Client of Ottla with the calls that all handles of librdkafka have. A base class before the one of the client."""

    def __del__(self) -> None:
        """End in the background, without a warning: programs of confluent-kafka close no producer."""
        if not self._released and not sys.is_finalizing():
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
        """Have polls call throttle_cb with the throttle times of responses, and error_cb with refused logins.

        A refused login is tried again, as by librdkafka: what waits for it does so until its own timeout.
        """
        network = self._core.network

        def report(link: Link, throttle_ms: int) -> None:
            nodes = (node for node, address in network.brokers.items() if address == link.address)
            node = link.node if link.node >= 0 else next(nodes, -1)
            events.throttled(ThrottleEvent(address_text(*link.address), node, throttle_ms / 1000))

        def listen() -> None:
            network.on_refused_login = events.report
            if events.has("throttle_cb"):
                network.on_throttle.append(report)

        self._call(listen)
