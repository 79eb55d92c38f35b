"""Requests of this broker to other brokers of its cluster, over the listener that brokers use among themselves.

A broker that dies may leave its connections open: the reset can be lost, and a machine without power sends none. So the
connections to a broker are closed when the image has another incarnation of it, or no sign of life. Their requests are answered
with None at once, and the caller decides: markers and share states are written again, and a client repeats what could not be
verified, each at the coordinator or leader of the newer image.

A broker that is killed resets its connections at once, long before it is fenced. A client that asks for the leaders then, and
hears of the dead one, may wait for a second until it asks again, as librdkafka does. So a leader whose connection breaks is
`lost`, until it answers again, for a second at most: it may live, and clients may reach it where this broker does not.
Metadata does not name it as a leader. It stays in the list of brokers for longer (`departed`), also when it is fenced:
librdkafka drops a broker that has left the list, after it has moved the partitions to their new leader, and with it the move.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from ottla.broker.cluster.confirmations import Confirmations
from ottla.environment import Address, Cancellable, Environment, Transport
from ottla.metadata.image import BrokerImage, Delta, Image
from ottla.net.authentication import Credentials
from ottla.net.connection import ConnectionSettings, Link
from ottla.net.errors import ConnectionLost, KafkaError
from ottla.net.network import Network
from ottla.protocol.connection import PositionalResponse
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.schema import Request, Response
from ottla.tasks.deferred import Answer, Deferred, gather
from ottla.tasks.scheduler import Scheduler

R = TypeVar("R", bound=Response)
_logger = logging.getLogger("ottla.cluster")
_REQUEST_TIMEOUT_MS: Final = 30_000
_SETUP_TIMEOUT_MS: Final = 3_000
_OLDEST_FETCH: Final = 15
"""First version of Fetch with the broker epoch of the follower (KIP-903)."""
_LOST_MS: Final = 1_000
"""Time after which a lost broker is not lost any more."""
_DEPARTED_MS: Final = 5_000
"""Time after which it has not departed any more."""
_CONFIRMATION: Final = "confirmation"


class _Fetch:
    """Fetch of a follower in flight. Not a task of the scheduler, which would take as long as a write to a log."""

    __slots__ = ("_answered", "_peers", "_request", "_timeout_ms", "node_id")

    def __init__(
        self,
        peers: "Peers",
        node_id: int,
        request: FetchRequest,
        timeout_ms: int,
        answered: Callable[[PositionalResponse | None], None],
    ) -> None:
        self._peers = peers
        self.node_id = node_id
        self._request = request
        self._timeout_ms = timeout_ms
        self._answered: Callable[[PositionalResponse | None], None] | None = answered

    def send(self, link: Link) -> None:
        """Send the request over a ready connection, unless it was cancelled."""
        if self._answered is None:
            return
        try:
            version = link.version(FetchRequest, oldest=_OLDEST_FETCH)
            response = link.request_positions(self._request, version, timeout_ms=self._timeout_ms)
        except KafkaError as cause:
            _logger.debug("fetch from broker %d failed: %s", self.node_id, cause)
            self.end(None)
        else:
            response.listen(self._on_response)

    def _on_response(self, response: Deferred[PositionalResponse]) -> None:
        if response.error is not None:
            _logger.debug("fetch from broker %d failed: %s", self.node_id, response.error)
            if isinstance(response.error, ConnectionLost):
                self._peers.note_loss(self.node_id)
            self.end(None)
        else:
            if self._peers.departed:
                self._peers.note_answer(self.node_id)
            self.end(response.result())

    def end(self, response: PositionalResponse | None) -> None:
        """Pass on the response, or None without one, unless the fetch was cancelled."""
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(response)

    def cancel(self) -> None:
        """See `Cancellable.cancel`."""
        self._answered = None


class Peers:
    """Connections to the other brokers.

    image        returns the current image
    credentials  SASL credentials of this broker; None without SASL
    transport    opens connections, with TLS if the listener of the other brokers has it; None: that of the environment
    """

    def __init__(
        self,
        node_id: int,
        *,
        image: Callable[[], Image],
        environment: Environment,
        tasks: Scheduler,
        credentials: Credentials | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._node_id = node_id
        self._image = image
        settings = ConnectionSettings(
            f"broker-{node_id}",
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            setup_timeout_ms=_SETUP_TIMEOUT_MS,
            setup_timeout_max_ms=_SETUP_TIMEOUT_MS,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=1000,
            credentials=credentials,
        )
        self._timers = environment.timers
        self._lost: set[int] = set()
        self._departed: dict[int, BrokerImage] = {}
        self._forgetting: dict[int, list[Cancellable]] = {}
        """Timers after which a broker is not lost any more, and has not departed any more."""
        self._confirmations = Confirmations(self._confirmation, tasks)
        self._is_closed = False
        self.losses = 0
        """See `OtherBrokers.losses`."""
        self._scheduler = tasks
        self._network = Network(settings, self._scheduler, transport or environment.transport, environment.random)

    def request(self, node_id: int, request: Request[R], *, purpose: str = "") -> Answer[R | None]:
        """Send a request in the newest common version. The answer is None if the broker cannot be reached or does not answer,
        and then it may have served the request nevertheless.

        purpose  separates connections for requests that must not wait for each other
        """
        address = self._address(node_id)
        if address is None:
            return None
        answer: Deferred[R | None] = Deferred(self._scheduler)
        self._network.cluster_id = self._image().cluster_id

        async def send() -> None:
            try:
                link = await self._network.ready_at(address, purpose, node_id)
                response = await link.request(request, link.version(type(request)))
            except KafkaError as cause:
                _logger.debug("request to broker %d failed: %s", node_id, cause)
                answer.complete(None)
            else:
                answer.complete(response)

        self._scheduler.background(send(), f"request to broker {node_id}")
        return answer

    def fetch(
        self,
        node_id: int,
        request: FetchRequest,
        purpose: str,
        timeout_ms: int,
        answered: Callable[[PositionalResponse | None], None],
    ) -> Cancellable:
        """Send a fetch of this broker as a follower, and call `answered` once with the response, or with None without
        one, in a later turn of the loop or in this call. After `cancel` it is not called.

        purpose  separates the connections of fetches, as a fetch waits for records
        """
        self._network.cluster_id = self._image().cluster_id
        fetch = _Fetch(self, node_id, request, timeout_ms, answered)
        address = self._address(node_id)
        link = None if address is None else self._network.link_if_ready(address, purpose)
        if link is not None:
            fetch.send(link)
        elif address is None:
            fetch.end(None)
        else:
            self._scheduler.background(self._connect(fetch, address, purpose), f"fetch from broker {node_id}")
        return fetch

    @property
    def lost(self) -> Collection[int]:
        """See `OtherBrokers.lost`."""
        return self._lost

    @property
    def departed(self) -> Mapping[int, BrokerImage]:
        """See `OtherBrokers.departed`."""
        return self._departed

    def note_loss(self, node_id: int) -> None:
        """Note that a connection to a broker broke."""
        node = self._image().brokers.get(node_id)
        if node is None or node_id in self._lost or self._is_closed:
            return
        self.note_answer(node_id)  # its times begin again
        self._depart(node)
        self.losses += 1
        self._lost.add(node_id)
        self._forgetting[node_id].append(self._timers.call_later(_LOST_MS, lambda: self._lost.discard(node_id)))

    def _depart(self, node: BrokerImage) -> None:
        """List a broker that is dead, or cut off, for some seconds more."""
        node_id = node.node_id
        if node_id in self._departed or self._is_closed:
            return
        self._departed[node_id] = node
        self._forgetting[node_id] = [self._timers.call_later(_DEPARTED_MS, lambda: self.note_answer(node_id))]

    def note_answer(self, node_id: int) -> None:
        """Note that a broker has answered, or that nothing is known of it any more."""
        self._lost.discard(node_id)
        self._departed.pop(node_id, None)
        for timer in self._forgetting.pop(node_id, ()):
            timer.cancel()

    def confirm(self, node_ids: Iterable[int]) -> Answer[object]:
        """See `OtherBrokers.confirm`."""
        return gather([self._confirmations.confirm(node_id) for node_id in node_ids], lambda answers: answers)

    def _confirmation(self, node_id: int) -> Answer[object]:
        """Send a request to which the response is empty, and note the loss of a broker that has closed the connection."""
        address = self._address(node_id)
        if address is None:
            return None
        answer: Deferred[object] = Deferred(self._scheduler)

        async def send() -> None:
            link = None
            try:
                link = await self._network.ready_at(address, _CONFIRMATION, node_id)
                await link.request(OffsetForLeaderEpochRequest(), link.version(OffsetForLeaderEpochRequest))
            except KafkaError as cause:
                _logger.debug("broker %d does not confirm that it is alive: %s", node_id, cause)
                if link is not None and isinstance(cause, ConnectionLost):  # a failed attempt to connect proves nothing
                    self.note_loss(node_id)
            finally:
                answer.complete(None)

        self._scheduler.background(send(), f"confirmation of broker {node_id}")
        return answer

    async def _connect(self, fetch: "_Fetch", address: Address, purpose: str) -> None:
        try:
            link = await self._network.ready_at(address, purpose, fetch.node_id)
        except KafkaError as cause:
            _logger.debug("fetch from broker %d failed: %s", fetch.node_id, cause)
            fetch.end(None)
        else:
            fetch.send(link)

    def apply(self, delta: Delta) -> None:
        """Close the connections to brokers that have been fenced or restarted; those fenced without a clean stop have departed,
        also if none of their connections has broken here yet.
        """
        if not delta.membership:
            return
        after = delta.image.brokers
        for node_id, before in delta.before.brokers.items():
            if node_id not in after and node_id != self._node_id and delta.before.is_active(node_id):
                self._depart(before)
            address = _address(before)
            if address is not None and (node_id not in after or after[node_id].epoch != before.epoch):
                self._network.drop(address)

    def _address(self, node_id: int) -> Address | None:
        node = self._image().brokers.get(node_id)
        return None if node is None else _address(node)

    def close(self) -> None:
        """Close all connections; requests in flight are answered with None."""
        self._is_closed = True
        for node_id in list(self._departed):
            self.note_answer(node_id)
        self._network.close()


def _address(node: BrokerImage) -> Address | None:
    endpoint = node.endpoint(node.listener)
    return None if endpoint is None else (endpoint.host, endpoint.port)


def _report(name: str, error: BaseException) -> None:
    _logger.error("%s failed", name, exc_info=error)
