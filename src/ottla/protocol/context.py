"""Context of a request: its version, client, principal and connection."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol


class Peer:
    """Client of a connection: its port, and its software name and version (KIP-511).

    closed       listeners, called with this object when the connection is closed
    is_closed    True from then on
    is_follower  True for a broker that fetches as a follower
    """

    __slots__ = ("closed", "is_closed", "is_follower", "port", "software_name", "software_version")

    def __init__(self, port: int = -1) -> None:
        self.port = port
        self.closed: list[Callable[[Peer], None]] = []
        self.is_closed = self.is_follower = False
        self.software_name = self.software_version = "unknown"


class Authorizer(Protocol):
    """Permissions of principals."""

    def allows(
        self, context: "RequestContext", operation: int, resource_type: int, name: str, *, is_logged: bool = True
    ) -> bool:
        """Return True if the sender of a request is authorized for an operation on a resource; codes as in ACLs.

        is_logged  the decision is written to the audit log
        """

    def allows_any(self, context: "RequestContext", operation: int, resource_type: int) -> bool:
        """Return True if there can be a resource of a type on which the sender is authorized for an operation."""

    @property
    def end_request(self) -> Callable[["RequestContext"], None]:
        """Return what is called after the handler of each request."""


class RequestContext(NamedTuple):
    """Context of a request.

    version      API version of the request
    client_id    client.id in its header, may be None
    client_host  address of the client as Kafka prints it, "/127.0.0.1"
    principal    principal of the sender, "User:ANONYMOUS" unless authenticated
    address      (host, port) that the client connected to: advertised in Metadata responses by default
    peer         client of the connection, the same object for all its requests
    listener     name of the listener that the client connected to
    authorizer   permissions; None if all operations are allowed
    protocol     security protocol of the listener
    token_id     id of the delegation token that the sender logged in with; None without one
    api          key of the request's API, -1 if it is not known
    """

    version: int = 32767
    client_id: str | None = None
    client_host: str = ""
    principal: str = "User:ANONYMOUS"
    address: tuple[str, int] = ("", -1)
    peer: Peer = Peer()
    listener: str = "PLAINTEXT"
    authorizer: Authorizer | None = None
    protocol: str = "PLAINTEXT"
    token_id: str | None = None
    api: int = -1

    def allowed(self, operation: int, resource_type: int, name: str, *, is_logged: bool = True) -> bool:
        """Return True if the sender is authorized for an operation on a resource; codes as in `security.operations`.

        is_logged  the decision is written to the audit log
        """
        authorizer = self.authorizer
        return authorizer is None or authorizer.allows(self, operation, resource_type, name, is_logged=is_logged)

    @property
    def requester(self) -> str:
        """Return the principal with client id and address, for log messages."""
        return f"{self.principal} (client {self.client_id} at {self.client_host})"


NO_CONTEXT: Final = RequestContext()
