"""The metrics that clients have pushed (KIP-714).

A push is an OTLP `MetricsData` message, unpacked and otherwise as it came: what reads OTLP reads it. Of each client instance
the newest push is kept, together with how many there were.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

_MOST_INSTANCES: Final = 1024


class ClientMetrics(NamedTuple):
    """What one client instance has pushed.

    client_id      as the client calls itself, "" for none
    pushes, size   how many, and how many bytes they were unpacked
    received_ms    when the newest came, in ms since the epoch
    otlp           the newest, as OTLP `MetricsData`
    terminated     whether it was the client's last
    """

    client_id: str
    pushes: int
    size: int
    received_ms: int
    otlp: bytes
    terminated: bool


class ReceivedMetrics:
    """The newest metrics of clients, those that pushed last at the end; the oldest go when there are too many.

    pushes, size, refused  of all clients since the broker was started
    """

    def __init__(self) -> None:
        self.pushes = 0
        self.size = 0
        self.refused = 0
        self._instances: OrderedDict[bytes, ClientMetrics] = OrderedDict()

    def receive(self, instance: bytes, client_id: str, otlp: bytes, now_ms: int, *, terminated: bool) -> None:
        """A push has come from the client instance of this id."""
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
