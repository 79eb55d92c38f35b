"""Session of a connection: its principal, listener and permissions, and the contexts of its requests."""

from typing import Final

from ottla.environment import Address
from ottla.protocol.api import API_VERSIONS
from ottla.protocol.connection import Envelope
from ottla.protocol.context import Authorizer, Peer, RequestContext

_MOST_CONTEXTS: Final = 64
"""Contexts kept for one connection; a client uses one version of each API, and one client id."""
ANONYMOUS: Final = "User:ANONYMOUS"


class Session:
    """Session of one client connection, shared by all of its requests.

    address     host and port that the client connected to
    listener    name of the listener there
    principal   the sender of all requests of the connection
    authorizer  permissions; None while every client may do everything
    peer        the remote end of the connection
    """

    __slots__ = ("_contexts", "address", "authorizer", "client_host", "listener", "name", "peer", "principal")

    def __init__(
        self, peer: Address, address: Address, listener: str = "PLAINTEXT", authorizer: Authorizer | None = None
    ) -> None:
        self.name = f"{peer[0]}:{peer[1]}"
        self.client_host = f"/{peer[0]}"
        self.peer = Peer(peer[1])
        self.address = address
        self.listener = listener
        self.principal = ANONYMOUS
        self.authorizer = authorizer
        self._contexts: dict[tuple[int, str | None], RequestContext] = {}

    def context(self, envelope: Envelope) -> RequestContext:
        """Return the context of a request; requests of the same API version and client id share one."""
        key = envelope.version if envelope.api.key != API_VERSIONS else envelope.asked, envelope.client_id
        context = self._contexts.get(key)
        if context is None:
            if len(self._contexts) >= _MOST_CONTEXTS:
                self._contexts.clear()
            context = self._contexts[key] = RequestContext(
                version=key[0],
                client_id=envelope.client_id,
                client_host=self.client_host,
                principal=self.principal,
                address=self.address,
                peer=self.peer,
                listener=self.listener,
                authorizer=self.authorizer,
            )
        return context

    def close(self) -> None:
        """Notify the listeners of the peer that its connection is closed."""
        listeners, self.peer.closed = self.peer.closed, []
        for closed in listeners:
            closed(self.peer)
