"""Origin of a request: its version, client, principal, and the connection that it came by."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol


class Peer:
    """The other end of a connection: its port, and its software name and version (KIP-511).

    closed  listeners, called with it when the connection is closed
    """

    __slots__ = ("closed", "port", "software_name", "software_version")

    def __init__(self, port: int = -1) -> None:
        self.port = port
        self.closed: list[Callable[[Peer], None]] = []
        self.software_name = self.software_version = "unknown"


class Authorizer(Protocol):
    """Permissions of principals."""

    def allows(self, context: "RequestContext", operation: int, resource_type: int, name: str) -> bool:
        """Return whether the sender of a request may do an operation on a resource; the codes are those of ACLs."""


class RequestContext(NamedTuple):
    """Metadata of a request, besides its body.

    version      the version it was encoded in
    client_id    the client.id of its header, null allowed
    client_host  the peer's address as Kafka prints it, "/127.0.0.1"
    principal    sender, "User:ANONYMOUS" unless authenticated
    address      (host, port) that the client connected to: advertised by Metadata by default
    peer         the other end, the same object for all requests of a connection
    listener     name of the listener that the client connected to
    authorizer   permissions; None while every client may do everything
    """

    version: int = 32767
    client_id: str | None = None
    client_host: str = ""
    principal: str = "User:ANONYMOUS"
    address: tuple[str, int] = ("", -1)
    peer: Peer = Peer()
    listener: str = "PLAINTEXT"
    authorizer: Authorizer | None = None

    def allowed(self, operation: int, resource_type: int, name: str) -> bool:
        """Return whether the sender may do an operation on a resource, by the codes in `security.operations`."""
        return self.authorizer is None or self.authorizer.allows(self, operation, resource_type, name)

    @property
    def requester(self) -> str:
        """The principal with its client id and address, for the log."""
        return f"{self.principal} (client {self.client_id} at {self.client_host})"


NO_CONTEXT: Final = RequestContext()
