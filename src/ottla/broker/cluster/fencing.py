"""Fencing of a broker whose process has ended, long before its session times out.

The operating system of a killed broker refuses connections to its address. So every broker keeps one connection to the
controller, and the controller one to every broker. When such a connection breaks, and the address then refuses several
connections in a row, the peer revokes the lease of that broker, by the id in its sign of life: a later incarnation has another
lease.

A refusal proves little about a broker that runs elsewhere, behind a firewall for instance. Therefore

    - a broker that is refused by more than half of the others fences none: its own network is at fault
    - a fenced broker whose process lives becomes live again, and is not fenced by refusal again for a session timeout
    - only refusals count; a broker that does not answer is fenced at the end of its session
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ottla.environment import Cancellable, Clock, Stream, Timers, Transport
from ottla.metadata.image import BrokerImage, Delta, Image, Liveness
from ottla.metadata.store import MetadataStore

_logger = logging.getLogger("ottla.cluster")
_ATTEMPTS: Final = 3
_ATTEMPT_EVERY_MS: Final = 50
_BRIEF_CONNECTION_MS: Final = 100
_ATTEMPT_TIMEOUT_MS: Final = 1000
_RECONNECT_MS: Final = 1000
REFUSED: Final = "Connection refused"


class _Attempt:
    """Connection attempt; `ended` gets the stream, or the reason of the failure. Afterwards `lost` is called when it breaks."""

    def __init__(self, ended: Callable[[Stream | None, str], None], lost: Callable[[], None]) -> None:
        self._ended = ended
        self._lost = lost
        self._is_connected = False

    def resolved(self) -> None:
        """Handle the resolution of the host name; nothing depends on it."""

    def connected(self, stream: Stream) -> None:
        self._is_connected = True
        self._ended(stream, "")

    def readable(self, receive_into: Callable[..., int]) -> None:
        """Discard bytes; the other broker sends none. The end of the stream is the end of the connection."""
        try:
            while receive_into(bytearray(512)):
                pass
        except BlockingIOError:
            return
        except OSError:
            pass
        self._lost()

    def lost(self, reason: str) -> None:
        if self._is_connected:
            self._lost()
        else:
            self._ended(None, reason)

    def rejected(self, reason: str) -> None:
        """Handle a connection that one side does not accept; these connections are without TLS, so this does not happen."""
        self.lost(reason)


class _Peer:
    """Watched broker: its connection, and the refusals since that broke."""

    def __init__(self, node: BrokerImage) -> None:
        self.node = node
        self.stream: Stream | None = None
        self.timer: Cancellable | None = None
        self.give_up: Callable[[], None] | None = None
        self.refusals = 0
        self.was_connected = False
        self.connected_ms = 0
        self.brief_connections = 0
        """Connections one after the other that the peer has closed at once."""
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        if self.stream is not None:
            self.stream.close()
        if self.timer is not None:
            self.timer.cancel()
        if self.give_up is not None:
            self.give_up()


class QuickFencing:
    """Watches the brokers that this broker must watch, and fences those whose process has ended.

    session_timeout_ms  broker.session.timeout.ms
    """

    def __init__(
        self,
        node_id: int,
        *,
        image: Callable[[], Image],
        store: MetadataStore,
        transport: Transport,
        clock: Clock,
        timers: Timers,
        session_timeout_ms: int,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._store = store
        self._transport = transport
        self._clock = clock
        self._timers = timers
        self._session_timeout_ms = session_timeout_ms
        self._peers: dict[int, _Peer] = {}
        self._fenced: dict[str, int] = {}
        """Time at which each incarnation was fenced."""
        self.fenced_total = 0
        self._is_closed = False

    def begin(self) -> None:
        """Begin to watch; called once this broker is live."""
        self._follow(self._image())

    def apply(self, delta: Delta) -> None:
        """Apply a change of the metadata."""
        if delta.membership:
            self._follow(delta.image)

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _follow(self, image: Image) -> None:
        """Watch the brokers that the image demands: all as controller, otherwise the controller."""
        if self._is_closed:
            return
        is_controller = image.controller_id == self._node_id
        watched = {
            node_id: node
            for node_id, node in image.brokers.items()
            if node_id != self._node_id and (is_controller or node_id == image.controller_id)
        }
        for node_id, peer in list(self._peers.items()):
            node = watched.get(node_id)
            if node is None or node.epoch != peer.node.epoch:
                peer.close()
                del self._peers[node_id]
        for node_id, node in watched.items():
            if node_id not in self._peers:
                self._peers[node_id] = peer = _Peer(node)
                self._connect(peer)

    def _connect(self, peer: _Peer) -> None:
        peer.timer = None
        self._attempt(peer.node, partial(self._on_connected, peer), partial(self._on_lost, peer), peer)

    def _attempt(
        self,
        node: BrokerImage,
        ended: Callable[[Stream | None, str], None],
        lost: Callable[[], None],
        peer: _Peer | None = None,
    ) -> None:
        """Connect to a broker; `ended` is called once, at the latest after a timeout."""
        endpoint = node.endpoint(node.listener)
        if endpoint is None:
            return
        is_decided = False

        def decide(stream: Stream | None, reason: str) -> None:
            nonlocal is_decided
            if is_decided:
                if stream is not None:
                    stream.close()
                return
            is_decided = True
            timer.cancel()
            ended(stream, reason)

        def time_out() -> None:
            give_up()
            decide(None, "no answer")

        timer = self._timers.call_later(_ATTEMPT_TIMEOUT_MS, time_out)
        give_up = self._transport.open((endpoint.host, endpoint.port), _Attempt(decide, lost))
        if peer is not None:
            peer.give_up = give_up

    def _on_connected(self, peer: _Peer, stream: Stream | None, reason: str) -> None:
        peer.give_up = None
        if peer.is_closed:
            if stream is not None:
                stream.close()
            return
        if stream is not None:
            peer.stream, peer.refusals, peer.was_connected = stream, 0, True
            peer.connected_ms = self._clock.now_ms()
        elif REFUSED in reason and peer.was_connected:
            peer.refusals += 1
            if peer.refusals >= _ATTEMPTS:
                peer.refusals = 0
                self._judge(peer)
                self._later(peer, _RECONNECT_MS)
            else:
                self._later(peer, _ATTEMPT_EVERY_MS)
        else:
            peer.was_connected = peer.was_connected or REFUSED in reason
            peer.refusals = 0
            self._later(peer, _ATTEMPT_EVERY_MS if REFUSED in reason else _RECONNECT_MS)

    def _on_lost(self, peer: _Peer) -> None:
        stream, peer.stream = peer.stream, None
        if stream is not None:
            stream.close()
        # A process that has ended refuses the next connection, or closes it because its listening socket is the last to go. One
        # that goes on to close them has no room for more.
        if self._clock.now_ms() - peer.connected_ms >= _BRIEF_CONNECTION_MS:
            peer.brief_connections = 0
            if not peer.is_closed:
                self._connect(peer)
        else:
            peer.brief_connections += 1
            self._later(peer, _ATTEMPT_EVERY_MS if peer.brief_connections == 1 else _RECONNECT_MS)

    def _later(self, peer: _Peer, delay_ms: int) -> None:
        if not peer.is_closed:
            peer.timer = self._timers.call_later(delay_ms, partial(self._connect, peer))

    def _judge(self, peer: _Peer) -> None:
        """Fence a broker that has refused connections, unless most of the other brokers refuse them too."""
        image = self._image()
        sign = image.live.get(peer.node.node_id)
        if sign is None or sign.incarnation != peer.node.incarnation:
            return
        now = self._clock.now_ms()
        fenced_at = self._fenced.get(sign.incarnation)
        if fenced_at is not None and now - fenced_at < self._session_timeout_ms:
            return
        others = [node for node_id, node in image.brokers.items() if node_id not in (self._node_id, peer.node.node_id)]
        self._count_refusals(others, lambda refused: self._decide(peer, sign, refused + 1, len(others) + 1))

    def _count_refusals(self, nodes: Sequence[BrokerImage], counted: Callable[[int], None]) -> None:
        """Connect once to each of these brokers, and pass on how many refuse it."""
        left, refused = len(nodes), 0

        def on_end(stream: Stream | None, reason: str) -> None:
            nonlocal left, refused
            if stream is not None:
                stream.close()
            left -= 1
            refused += REFUSED in reason
            if left == 0:
                counted(refused)

        if not nodes:
            counted(0)
        for node in nodes:
            self._attempt(node, on_end, lambda: None)

    def _decide(self, peer: _Peer, sign: Liveness, refused: int, others: int) -> None:
        node_id = peer.node.node_id
        if self._is_closed or peer.is_closed:
            return
        if 2 * refused > others:
            _logger.warning(
                "broker %d refuses connections, like %d of %d other brokers: none is fenced before its session ends",
                node_id,
                refused,
                others,
            )
            return
        _logger.warning("broker %d refuses connections: it is fenced", node_id)
        self._fenced[sign.incarnation] = self._clock.now_ms()
        self.fenced_total += 1
        self._store.revoke(sign.lease)
