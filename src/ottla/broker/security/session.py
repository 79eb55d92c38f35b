"""Session of a connection: its principal, listener and permissions, and the contexts of its requests."""

from collections.abc import Callable
from typing import Final

from ottla.addresses import address_text
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
    protocol    security protocol of the listener
    principal   the sender of all requests of the connection
    token_id    id of the delegation token that the sender logged in with; None without one
    authorizer  permissions of the principal; None if every client may do everything
    peer        the remote end of the connection
    peer_address  IP address of the client

    authorize   returns the permissions of a principal at an IP address; None if every client may do everything
    """

    __slots__ = (
        "_authorize",
        "_contexts",
        "address",
        "authorizer",
        "client_host",
        "listener",
        "name",
        "peer",
        "peer_address",
        "principal",
        "protocol",
        "token_id",
    )

    def __init__(
        self,
        peer: Address,
        address: Address,
        listener: str = "PLAINTEXT",
        protocol: str = "PLAINTEXT",
        authorize: Callable[[str, str], Authorizer] | None = None,
    ) -> None:
        self.name = address_text(peer[0], peer[1])
        self.peer_address = peer[0]
        self.client_host = f"/{peer[0]}"
        self.peer = Peer(peer[1])
        self.address = address
        self.listener = listener
        self.protocol = protocol
        self.principal = ANONYMOUS
        self.token_id: str | None = None
        self._authorize = authorize
        self.authorizer = None if authorize is None else authorize(ANONYMOUS, peer[0])
        self._contexts: dict[tuple[int, int, str | None], RequestContext] = {}

    def authenticate(self, principal: str, token_id: str | None = None) -> None:
        """Set the principal of all further requests."""
        self.principal = principal
        self.token_id = token_id
        if self._authorize is not None:
            self.authorizer = self._authorize(principal, self.peer_address)
        self._contexts.clear()

    def context(self, envelope: Envelope) -> RequestContext:
        """Return the context of a request; requests of the same API, version and client id share one."""
        api = envelope.api.key
        key = api, envelope.version if api != API_VERSIONS else envelope.asked, envelope.client_id
        context = self._contexts.get(key)
        if context is None:
            if len(self._contexts) >= _MOST_CONTEXTS:
                self._contexts.clear()
            context = self._contexts[key] = RequestContext(
                version=key[1],
                client_id=envelope.client_id,
                client_host=self.client_host,
                principal=self.principal,
                address=self.address,
                peer=self.peer,
                listener=self.listener,
                authorizer=self.authorizer,
                protocol=self.protocol,
                token_id=self.token_id,
                api=api,
            )
        return context

    @property
    def log_fields(self) -> dict[str, str]:
        """Return the `extra` of a log record about the connection."""
        return {"listener": self.listener, "principal": self.principal, "client_host": self.client_host}

    def close(self) -> None:
        """Notify the listeners of the peer that its connection is closed."""
        self.peer.is_closed = True
        listeners, self.peer.closed = self.peer.closed, []
        for closed in listeners:
            closed(self.peer)
