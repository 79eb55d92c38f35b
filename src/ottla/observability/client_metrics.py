"""The metrics that clients have pushed (KIP-714).

A push is an OTLP `MetricsData` message, decompressed and otherwise as received: any reader of OTLP reads it. The newest push of
each client instance is stored, with the number of its pushes.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

_MOST_INSTANCES: Final = 1024


class ClientMetrics(NamedTuple):
    """Pushed metrics of one client instance.

    client_id      client id in the request, "" without one
    pushes, size   number of pushes, and their decompressed bytes
    received_ms    time of the newest push, in ms since the epoch
    otlp           the newest, as OTLP `MetricsData`
    terminated     True if it was the client's last
    """

    client_id: str
    pushes: int
    size: int
    received_ms: int
    otlp: bytes
    terminated: bool


class ReceivedMetrics:
    """The newest metrics of clients, those that pushed last at the end; the oldest are dropped when there are too many.

    pushes, size, refused  of all clients since the broker was started
    """

    def __init__(self) -> None:
        self.pushes = 0
        self.size = 0
        self.refused = 0
        self._instances: OrderedDict[bytes, ClientMetrics] = OrderedDict()

    def receive(self, instance: bytes, client_id: str, otlp: bytes, now_ms: int, *, terminated: bool) -> None:
        """Store a push of the client instance with this id."""
        before = self._instances.pop(instance, None)
        pushes, size = (before.pushes, before.size) if before is not None else (0, 0)
        kept = otlp or (before.otlp if before is not None else b"")
        self._instances[instance] = ClientMetrics(client_id, pushes + 1, size + len(otlp), now_ms, kept, terminated)
        self.pushes += 1
        self.size += len(otlp)
        if len(self._instances) > _MOST_INSTANCES:
            self._instances.popitem(last=False)

    def instances(self) -> dict[bytes, ClientMetrics]:
        """By client instance id (16 bytes)."""
        return dict(self._instances)
