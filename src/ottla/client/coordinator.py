"""Connection to the coordinator of one group or transactional id: lookup, requests, and when to look it up again.

All clients use one policy for an unavailable coordinator: it is forgotten when its connection fails, and when it responds
that another broker is the coordinator. The next attempt looks it up again (FindCoordinator). The caller retries the
request: by `Metadata.retrying`, or with the next heartbeat of a member.
"""

from typing import Final, TypeVar

from ottla.client.errors import ConnectionLost, Permission, error_for
from ottla.client.metadata import Metadata
from ottla.net.connection import Link
from ottla.protocol.errors import COORDINATOR_NOT_AVAILABLE, NONE, NOT_COORDINATOR
from ottla.protocol.schema import Request, Response
from ottla.tasks.deferred import Deferred

R = TypeVar("R", bound=Response)
GROUP: Final = 0
TRANSACTION: Final = 1
_NEWEST: Final = 32767
_PURPOSE: Final = "coordinator"
"""Purpose of the connections for group requests, which are separate because a JoinGroup may wait for minutes."""


class CoordinatorClient:
    """Client of the coordinator of a key.

    kind  GROUP or TRANSACTION
    key   group id or transactional id
    """

    def __init__(self, metadata: Metadata, kind: int, key: str) -> None:
        self._metadata = metadata
        self._kind = kind
        self._key = key

    async def link(self) -> Link:
        """Return the connection to the coordinator. Raises KafkaError."""
        node = await self._metadata.coordinator(self._kind, self._key)
        try:
            return await self._metadata.network.ready(node, _PURPOSE)
        except ConnectionLost:
            self.forget()
            raise

    async def request(self, request: Request[R], *, newest: int = _NEWEST) -> R:
        """Send a request in the newest common version, up to `newest`; return the response. `check` raises its errors."""
        link = await self.link()
        return await self.response(link.request(request, link.version(type(request), newest)))

    async def response(self, promise: Deferred[R]) -> R:
        """Wait for the response to a request that was sent over `link`."""
        try:
            return await promise
        except ConnectionLost:
            self.forget()
            raise

    def check(self, code: int, about: str, message: str | None = None, *needed: Permission) -> None:
        """Raise the error of a response, if it has one.

        needed  permissions that the request needs, beside or in place of that on the key
        """
        if code != NONE:
            self.note(code)
            of_key = self._metadata.key_permission(self._kind, self._key)
            is_named = any(permission.resource_type == of_key.resource_type for permission in needed)
            raise error_for(code, about, message, *needed if is_named else (of_key, *needed))

    def note(self, code: int) -> None:
        """Handle the error code of a response: forget the coordinator if another broker has its role."""
        if code in (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR):
            self.forget()

    def forget(self) -> None:
        """Forget the coordinator, so that the next request looks it up again."""
        self._metadata.forget_coordinator(self._kind, self._key)
