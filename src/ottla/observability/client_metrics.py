"""Metrics pushed by clients (KIP-714).

A push is an OTLP `MetricsData` message, decompressed. The newest push of each client instance is stored, with the number of its
pushes: only the metrics that the client is subscribed to, and within bounds, as a client may push whatever it likes.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.observability.varints import read_varint, write_varint

ALL_METRICS: Final = "*"
MOST_BYTES: Final = 64 << 20
"""Maximum size of all stored pushes together; the oldest are dropped beyond it."""
MOST_SERIES: Final = 1000
"""Maximum number of data points that are stored of one push."""
MOST_ATTRIBUTES: Final = 16
"""Maximum number of attributes of a data point; metrics with more are not stored. Clients of Kafka send up to four."""
_MOST_INSTANCES: Final = 1024
_MOST_FIELDS: Final = 20_000
"""Number of fields of a push that are looked at, on the event loop: some milliseconds. The rest is dropped."""

# Numbers of fields in OTLP: `MetricsData`, `ResourceMetrics` and `ScopeMetrics` nest; the points of a metric are in one of sev
_RESOURCE_METRICS, _SCOPE_METRICS, _METRICS = 1, 2, 2
_NAME, _GAUGE, _SUM, _DATA_POINTS, _ATTRIBUTES = 1, 5, 7, 1, 7
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


class ClientMetrics(NamedTuple):
    """Pushed metrics of one client instance.

    client_id      client id in the request, "" without one
    principal      its user, as User:name
    pushes, size   number of pushes, and their decompressed bytes
    received_ms    time of the newest push, in ms since the epoch
    otlp           newest push, as OTLP `MetricsData`
    terminated     True if it was the last push of the client
    series         number of its data points
    """

    client_id: str
    principal: str
    pushes: int
    size: int
    received_ms: int
    otlp: bytes
    terminated: bool
    series: int


class ReceivedMetrics:
    """Newest metrics of each client, ordered by time of the last push; the oldest are dropped beyond a limit.

    pushes, size, refused  totals of all clients since the start of the broker
    stored                 bytes of all stored pushes
    """

    def __init__(self) -> None:
        self.pushes = 0
        self.size = 0
        self.refused = 0
        self.stored = 0
        self._instances: OrderedDict[bytes, ClientMetrics] = OrderedDict()

    def receive(
        self,
        instance: bytes,
        client_id: str,
        principal: str,
        otlp: bytes,
        now_ms: int,
        *,
        terminated: bool,
        prefixes: Sequence[str] = (ALL_METRICS,),
    ) -> None:
        """Store a push of the client instance with this id.

        prefixes  of the metrics that the client is subscribed to; ALL_METRICS stands for all, and without any nothing is stored
        """
        self.pushes += 1
        self.size += len(otlp)
        if not prefixes:
            return
        before = self._instances.pop(instance, None)
        pushes, size = (before.pushes, before.size) if before is not None else (0, 0)
        kept, series = (
            select_metrics(otlp, prefixes) if otlp else (before.otlp, before.series) if before is not None else (b"", 0)
        )
        self.stored += len(kept) - (len(before.otlp) if before is not None else 0)
        self._instances[instance] = ClientMetrics(
            client_id, principal, pushes + 1, size + len(otlp), now_ms, kept, terminated, series
        )
        while len(self._instances) > _MOST_INSTANCES or self.stored > MOST_BYTES:
            self.stored -= len(self._instances.popitem(last=False)[1].otlp)

    def __len__(self) -> int:
        return len(self._instances)

    def instances(self) -> dict[bytes, ClientMetrics]:
        """Return the metrics by client instance id (16 bytes)."""
        return dict(self._instances)


def select_metrics(otlp: bytes, prefixes: Sequence[str]) -> tuple[bytes, int]:
    """Return the metrics of a push whose names begin with a prefix, up to MOST_SERIES points, and the number of these.

    Nothing of a malformed push.
    """
    selection = _Selection(otlp, prefixes)
    try:
        return selection.select(), MOST_SERIES - selection.series_left
    except (ValueError, IndexError):
        return b"", 0


class _Field(NamedTuple):
    """Field of a protobuf message: its number and wire type, where it begins, and where its value begins and ends."""

    number: int
    kind: int
    begin: int
    start: int
    end: int


class _Selection:
    """Selection of metrics of one push. Messages are walked, not decoded: what is kept is copied as it is."""

    def __init__(self, otlp: bytes, prefixes: Sequence[str]) -> None:
        self._otlp = otlp
        self._prefixes = None if ALL_METRICS in prefixes else tuple(prefix.encode() for prefix in prefixes)
        self._fields_left = _MOST_FIELDS
        self.series_left = MOST_SERIES

    def select(self) -> bytes:
        """Return the selected metrics. Raises ValueError or IndexError if the push is malformed."""
        return self._select_nested(0, len(self._otlp), (_RESOURCE_METRICS, _SCOPE_METRICS, _METRICS))

    def _select_nested(self, start: int, end: int, path: tuple[int, ...]) -> bytes:
        """Return a message with those of its fields `path[0]` that have a selected metric, and with all its other fields."""
        parts: list[bytes] = []
        has_metric = False
        for field in self._fields(start, end):
            part = self._otlp[field.begin : field.end]
            if field.number == path[0] and field.kind == _BYTES:
                if len(path) == 1:
                    part = part if self._is_wanted(field) else b""
                elif inner := self._select_nested(field.start, field.end, path[1:]):
                    part = bytes((field.number << 3 | _BYTES,)) + write_varint(len(inner)) + inner
                else:
                    part = b""
                has_metric = has_metric or bool(part)
            parts.append(part)
        return b"".join(parts) if has_metric else b""

    def _is_wanted(self, metric: _Field) -> bool:
        name, points = b"", 0
        for field in self._fields(metric.start, metric.end):
            if field.number == _NAME and field.kind == _BYTES:
                name = self._otlp[field.start : field.end]
            elif field.number in (_GAUGE, _SUM) and field.kind == _BYTES:
                for point in self._fields(field.start, field.end):
                    if point.number != _DATA_POINTS or point.kind != _BYTES:
                        continue
                    points += 1
                    inner = self._fields(point.start, point.end)
                    if sum(part.number == _ATTRIBUTES for part in inner) > MOST_ATTRIBUTES:
                        return False
        if self._prefixes is not None and not name.startswith(self._prefixes):
            return False
        if not 0 < points <= self.series_left or self._fields_left == 0:  # without fields left there may be more points
            return False
        self.series_left -= points
        return True

    def _fields(self, start: int, end: int) -> Iterator[_Field]:
        """Iterate over the fields of a message; none follow once too many have been looked at."""
        data, position = self._otlp, start
        while position < end:
            if self._fields_left == 0:
                return
            self._fields_left -= 1
            begin = position
            tag, position = read_varint(data, position)
            kind = tag & 7
            if kind == _VARINT:
                value = position
                position = read_varint(data, position)[1]
            elif kind == _BYTES:
                size, value = read_varint(data, position)
                position = value + size
            elif kind in (_FIXED_64, _FIXED_32):
                value = position
                position += 8 if kind == _FIXED_64 else 4
            else:
                raise ValueError(f"wire type {kind}")
            if position > end:
                raise ValueError("a field runs past its message")
            yield _Field(tag >> 3, kind, begin, value, position)
