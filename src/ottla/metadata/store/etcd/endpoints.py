"""Requests to an etcd cluster: fail-over between its endpoints, time limits, and login.

Requests go to one endpoint as long as it answers, then to the next one in the order of the URL. A request that was not sent, or
that may be repeated, is tried at every endpoint before it fails; one that may not be repeated, such as a transaction, has an
unknown outcome if it was sent and no answer came.
"""

import logging
from collections.abc import Callable
from typing import Final

from ottla.environment import Address, Transport
from ottla.metadata.store.etcd import gateway
from ottla.metadata.store.etcd.gateway import Failure, Json
from ottla.metadata.store.etcd.http import HttpConnection, HttpError, HttpResponse
from ottla.metadata.store.etcd.url import EtcdUrl, endpoint_text
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Scheduler

LIMIT_MS: Final = 2000
"""Time that an endpoint has for an answer."""
_CONNECT_MS: Final = 1000
_PAUSE_MS: Final = 100
"""Time between two rounds through all endpoints."""
_HAS_LEADER: Final = ("Grpc-Metadata-hasleader", "true")
"""Header that makes a member without a leader refuse a request, which it would otherwise leave unanswered."""

logger = logging.getLogger("ottla.metadata")


class EtcdError(Exception):
    """Failed request; the message is one line.

    is_unknown  True if the request may have been carried out
    code        code of gRPC if etcd refused the request, 0 otherwise
    """

    def __init__(self, reason: str, *, is_unknown: bool = False, code: int = 0) -> None:
        super().__init__(reason)
        self.is_unknown = is_unknown
        self.code = code


class _Retriable(Exception):
    """Attempt that failed for a reason that another endpoint may not have."""

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class _Refused(Exception):
    """Error in etcd's answer."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Endpoints:
    """Connections to the endpoints of an etcd cluster."""

    def __init__(self, url: EtcdUrl, scheduler: Scheduler, transport: Transport) -> None:
        self._url = url
        self._scheduler = scheduler
        self._transport = transport
        self._current = 0
        self._idle: dict[Address, list[HttpConnection]] = {address: [] for address in url.endpoints}
        self._token: str | None = None
        self._reported: dict[Address, str] = {}
        """Last failure of each endpoint that has not answered since."""
        self._closed = False

    async def call(self, target: str, request: Json, *, repeatable: bool = True) -> Json:
        """Make a request and return etcd's answer. Raises EtcdError.

        repeatable  False for a request that must not be carried out twice
        """
        clock = self._scheduler.clock
        deadline = clock.now_ms() + LIMIT_MS
        failures: dict[str, str] = {}
        attempts = 0
        while True:
            address = self._url.endpoints[self._current]
            attempts += 1
            try:
                return await self._call_at(address, target, request)
            except _Retriable as failed:
                failures[endpoint_text(address)] = str(failed)
                self._move_on(address, str(failed))
                if failed.was_sent and not repeatable:
                    reason = f"etcd at {endpoint_text(address)} did not confirm the change: {failed}"
                    raise EtcdError(reason, is_unknown=True) from None
            except _Refused as refused:
                raise EtcdError(str(refused), code=refused.failure.code) from None
            if attempts >= len(self._url.endpoints):
                if clock.now_ms() >= deadline or self._closed:
                    reasons = ", ".join(f"{endpoint} ({reason})" for endpoint, reason in failures.items())
                    raise EtcdError(f"no endpoint of etcd answers: {reasons}")
                if attempts % len(self._url.endpoints) == 0:
                    await self._scheduler.sleep(_PAUSE_MS)

    async def stream(self, target: str, request: Json, receive: Callable[[bytes], None]) -> HttpConnection:
        """Begin a request whose answer is streamed, at the current endpoint, and return the connection.

        receive  called with each piece of the answer, and with b"" at the end of the stream, for whatever reason
        """
        address = self._url.endpoints[self._current]
        try:
            headers = [_HAS_LEADER, *await self._authorization(address)]
        except (_Retriable, _Refused) as error:
            self._move_on(address, str(error))
            raise EtcdError(str(error)) from None
        connection = HttpConnection(self._transport, address, self._scheduler)

        def time_out() -> None:
            if not connection.opened.done:
                connection.lost("the connection timed out")

        def ended(response: Deferred[HttpResponse]) -> None:
            timer.cancel()
            if response.error is None:
                result = response.result()
                if result.status != 200:
                    receive(result.body + b"\n")
            elif not connection.is_closed:
                self._move_on(address, str(response.error))
            receive(b"")

        timer = self._scheduler.call_later(_CONNECT_MS, time_out)
        connection.request("POST", target, gateway.body(request), headers, receive).listen(ended)
        return connection

    def next_endpoint(self, after: Address) -> None:
        """Use another endpoint than `after`, which does not deliver what it should."""
        if self._url.endpoints[self._current] == after:
            self._current = (self._current + 1) % len(self._url.endpoints)

    def forget_login(self) -> None:
        """Log in again for the next request."""
        self._token = None

    def close(self) -> None:
        """Close the connections that are not in use; the others are closed after their answers."""
        self._closed = True
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
            connections.clear()

    # -- one attempt --

    async def _call_at(self, address: Address, target: str, request: Json) -> Json:
        """Make a request at one endpoint, with a new login if the last one has expired."""
        for is_last in (False, True):
            headers = [_HAS_LEADER, *await self._authorization(address)]
            try:
                return await self._exchange(address, "POST", target, gateway.body(request), headers)
            except _Refused as refused:
                if self._url.user is None or is_last or not gateway.is_stale_login(refused.failure):
                    raise
                self._token = None
        raise AssertionError("unreachable")

    async def _authorization(self, address: Address) -> list[tuple[str, str]]:
        """Return the header of the login; nothing without a user."""
        if self._url.user is None:
            return []
        if self._token is None:
            credentials = gateway.body({"name": self._url.user, "password": self._url.password})
            answer = await self._exchange(address, "POST", gateway.AUTHENTICATE, credentials, [])
            self._token = str(answer.get("token", ""))
        return [("Authorization", self._token)]

    async def _exchange(
        self, address: Address, method: str, target: str, body: bytes, headers: list[tuple[str, str]]
    ) -> Json:
        """Send a request and return the parsed answer. Raises _Retriable or _Refused."""
        response = await self._response(address, method, target, body, headers)
        try:
            answer = gateway.parsed(response.body)
        except ValueError:
            raise await self._no_gateway(address, response) from None
        if response.status == 200 and "error" not in answer:
            self._answered(address)
            return answer
        failure = gateway.failure(answer.get("error") if isinstance(answer.get("error"), dict) else answer)
        if gateway.is_definite(failure):
            self._answered(address)
            raise _Refused(failure)
        raise _Retriable(failure.reason, was_sent=not gateway.is_not_started(failure))

    async def _response(
        self, address: Address, method: str, target: str, body: bytes, headers: list[tuple[str, str]]
    ) -> HttpResponse:
        """Send a request on an idle or new connection. Raises _Retriable."""
        connection = self._connection(address)
        answer = connection.request(method, target, body, headers)
        if not await self._scheduler.within(connection.opened, _CONNECT_MS):
            connection.close()
            raise _Retriable("the connection timed out", was_sent=False)
        if not await self._scheduler.within(answer, LIMIT_MS):
            connection.close()
            raise _Retriable(f"no answer within {LIMIT_MS / 1000:g} s", was_sent=True)
        try:
            response = answer.result()
        except HttpError as error:
            raise _Retriable(str(error), was_sent=error.was_sent) from None
        if connection.lost_because is None:
            if self._closed:
                connection.close()
            else:
                self._idle[address].append(connection)
        return response

    def _connection(self, address: Address) -> HttpConnection:
        idle = self._idle[address]
        while idle:
            connection = idle.pop()
            if connection.lost_because is None:
                return connection
        return HttpConnection(self._transport, address, self._scheduler)

    async def _no_gateway(self, address: Address, response: HttpResponse) -> Exception:
        """Return the error for an answer that is not JSON; etcd's version says why."""
        where = endpoint_text(address)
        if response.status == 400 and b"HTTPS" in response.body:
            return _Retriable("requires TLS: use etcds:// in place of etcd://", was_sent=False)
        if response.status != 404:
            return _Retriable(f"HTTP status {response.status} without JSON", was_sent=True)
        answer = await self._response(address, "GET", "/version", b"", [])
        try:
            version = str(gateway.parsed(answer.body)["etcdserver"])
            release = tuple(int(part) for part in version.split(".")[:2])
        except (ValueError, KeyError):
            return _Retriable("is no etcd", was_sent=False)
        if release < (3, 4):
            return EtcdError(f"etcd {version} at {where} is too old: 3.4 or newer is required")
        return EtcdError(f"etcd at {where} has its JSON gateway switched off (--enable-grpc-gateway=false)")

    # -- fail-over --

    def _answered(self, address: Address) -> None:
        if self._reported.pop(address, None) is not None:
            logger.info("etcd at %s answers again", endpoint_text(address))

    def _move_on(self, address: Address, reason: str) -> None:
        """Use the next endpoint, and log the first failure of this one."""
        for connection in self._idle[address]:
            connection.close()
        self._idle[address].clear()
        if address not in self._reported and not self._closed:
            self._reported[address] = reason
            logger.warning("etcd at %s fails: %s", endpoint_text(address), reason)
        self.next_endpoint(address)
