"""The coordinator of one group or transactional id: its connection, requests to it, and when to look for another one.

The one policy of all clients for a coordinator that is not there: it is forgotten when its connection cannot be opened or is
lost, and when it answers that another broker coordinates. The next attempt looks it up again (FindCoordinator). Repeating the
request is up to the caller: `Metadata.retrying`, or the heartbeats of a member.
"""

from typing import Final, TypeVar

from ottla.client.errors import ConnectionLost, error_for
from ottla.client.metadata import Metadata
from ottla.net.connection import Link
from ottla.net.scheduler import Promise
from ottla.protocol.errors import COORDINATOR_NOT_AVAILABLE, NONE, NOT_COORDINATOR
from ottla.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)
GROUP: Final = 0
TRANSACTION: Final = 1
_NEWEST: Final = 32767
_PURPOSE: Final = "coordinator"
"""Requests of groups have connections of their own: a JoinGroup waits for minutes."""


class CoordinatorClient:
    """The coordinator of a key.

    kind  GROUP or TRANSACTION
    key   group id or transactional id
    """

    def __init__(self, metadata: Metadata, kind: int, key: str) -> None:
        self._metadata = metadata
        self._kind = kind
        self._key = key

    async def link(self) -> Link:
        """The connection to the coordinator. Raises KafkaError."""
        node = await self._metadata.coordinator(self._kind, self._key)
        try:
            return await self._metadata.network.ready(node, _PURPOSE)
        except ConnectionLost:
            self.forget()
            raise

    async def request(self, request: Request[R], *, newest: int = _NEWEST) -> R:
        """Send in the newest version that both sides know, up to `newest`; return the response. Its errors are for `check`."""
        link = await self.link()
        return await self.response(link.request(request, link.version(type(request), newest)))

    async def response(self, promise: Promise[R]) -> R:
        """Wait for the response to a request that was sent over `link`."""
        try:
            return await promise
        except ConnectionLost:
            self.forget()
            raise

    def check(self, code: int, about: str, message: str | None = None) -> None:
        """Raise the error of a response, if it has one."""
        if code != NONE:
            self.note(code)
            raise error_for(code, about, message)

    def note(self, code: int) -> None:
        """Take in an error code of a response: it may say that another broker coordinates."""
        if code in (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR):
            self.forget()

    def forget(self) -> None:
        """Look the coordinator up again with the next request."""
        self._metadata.forget_coordinator(self._kind, self._key)
