"""Metrics pushed by clients (KIP-714).

A push is an OTLP `MetricsData` message, decompressed and otherwise as received. The newest push of each client instance is
stored, with the number of its pushes.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

_MOST_INSTANCES: Final = 1024


class ClientMetrics(NamedTuple):
    """Pushed metrics of one client instance.

    client_id      client id in the request, "" without one
    principal      its user, as User:name
    pushes, size   number of pushes, and their decompressed bytes
    received_ms    time of the newest push, in ms since the epoch
    otlp           newest push, as OTLP `MetricsData`
    terminated     True if it was the last push of the client
    """

    client_id: str
    principal: str
    pushes: int
    size: int
    received_ms: int
    otlp: bytes
    terminated: bool


class ReceivedMetrics:
    """Newest metrics of each client, ordered by time of the last push; the oldest are dropped beyond a limit.

    pushes, size, refused  totals of all clients since the start of the broker
    """

    def __init__(self) -> None:
        self.pushes = 0
        self.size = 0
        self.refused = 0
        self._instances: OrderedDict[bytes, ClientMetrics] = OrderedDict()

    def receive(
        self, instance: bytes, client_id: str, principal: str, otlp: bytes, now_ms: int, *, terminated: bool
    ) -> None:
        """Store a push of the client instance with this id."""
        before = self._instances.pop(instance, None)
        pushes, size = (before.pushes, before.size) if before is not None else (0, 0)
        kept = otlp or (before.otlp if before is not None else b"")
        self._instances[instance] = ClientMetrics(
            client_id, principal, pushes + 1, size + len(otlp), now_ms, kept, terminated
        )
        self.pushes += 1
        self.size += len(otlp)
        if len(self._instances) > _MOST_INSTANCES:
            self._instances.popitem(last=False)

    def instances(self) -> dict[bytes, ClientMetrics]:
        """Return the metrics by client instance id (16 bytes)."""
        return dict(self._instances)
