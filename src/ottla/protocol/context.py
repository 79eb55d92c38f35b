"""Origin of a request: its version, client, principal, and the connection that it came by."""

from collections.abc import Callable
from typing import Final, NamedTuple


class Peer:
    """The other end of a connection: its port, and its software name and version (KIP-511). `gone` is called with it when the
    connection is closed.
    """

    __slots__ = ("gone", "port", "software_name", "software_version")

    def __init__(self, port: int = -1) -> None:
        self.port = port
        self.gone: Callable[[Peer], None] | None = None
        self.software_name = self.software_version = "unknown"


class RequestContext(NamedTuple):
    """Metadata of a request, besides its body.

    version      the version it was encoded in
    client_id    the client.id of its header, null allowed
    client_host  the peer's address as Kafka prints it, "/127.0.0.1"
    principal    sender, "User:ANONYMOUS" unless authenticated
    address      (host, port) that the client connected to: advertised by Metadata by default
    peer         the other end, the same object for all requests of a connection
    """

    version: int = 32767
    client_id: str | None = None
    client_host: str = ""
    principal: str = "User:ANONYMOUS"
    address: tuple[str, int] = ("", -1)
    peer: Peer = Peer()

    @property
    def requester(self) -> str:
        """The principal with its client id and address, for the log."""
        return f"{self.principal} (client {self.client_id} at {self.client_host})"


NO_CONTEXT: Final = RequestContext()
