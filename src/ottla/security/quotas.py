"""Client quotas: their entities, their valid values, and the throttle time after too much usage.

KIP-13 (bytes), KIP-124 (time of requests), KIP-546 (entities), KIP-599 (mutations), KIP-612 (connections).

A rate is measured over the last `samples` windows, of which the newest is still open:

    | 7 | 0 | 3 | 12 | 5 ...      total of the windows / (time since the oldest began)
      ^ oldest        ^ newest

The throttle time is the time without traffic until the rate has fallen to the quota. Controller mutations come in bursts, so
they use a token bucket instead, which may be overdrawn once. This module reads no clock: times are arguments, in ms.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import isfinite
from typing import Final, NamedTuple, TypeVar

Entity = tuple[tuple[str, str | None], ...]
"""Entity of a quota: (type, name) by type; the name None is the default, for entities without a quota of their own."""
Quotas = Mapping[Entity, Mapping[str, float]]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
"""Match types of a filter's component, as the protocol numbers them."""

_WHOLE_NUMBERS: Final = {
    PRODUCER_BYTE_RATE: ("LONG", 2**63 - 1),
    CONSUMER_BYTE_RATE: ("LONG", 2**63 - 1),
    CONNECTION_CREATION_RATE: ("INT", 2**31 - 1),
}
_OF_CLIENTS: Final = frozenset((PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE))
_OF_ADDRESSES: Final = frozenset((CONNECTION_CREATION_RATE,))
_EPSILON: Final = 1e-6
_MOST_LOOK_UPS: Final = 1000
_MOST_IDLE_RATES: Final = 1000
_LOOKED_AT: Final = 8
"""Number of usages that are looked at when there is a new one."""
MOST_RATES: Final = 10_000
"""Number of clients, or addresses, whose usage is known. Clients choose their ids: those idle for longest are forgotten."""


class InvalidQuota(ValueError):
    """Invalid quota, entity or filter; the message is Kafka's."""


class UnknownEntityType(InvalidQuota):
    """The filter has an unknown entity type."""


class QuotaChange(NamedTuple):
    """A quota to be set, or removed with `remove`."""

    key: str
    value: float
    remove: bool


class Component(NamedTuple):
    """A part of a filter: entities whose `type` has this name (EXACT), none of its own (DEFAULT), or is there at all (ANY)."""

    type: str
    match: int
    name: str | None


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Create an entity: sort its parts by type; of two parts of one type the later one wins."""
    return tuple(sorted(dict(parts).items()))


def check_entity(entity: Entity) -> None:
    """Raise InvalidQuota unless `entity` may have quotas."""
    if not entity:
        raise InvalidQuota("Invalid empty client quota entity")
    types = [kind for kind, _ in entity]
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidQuota(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidQuota(f"Empty {kind} not supported")
    if IP in types and len(types) > 1:
        raise InvalidQuota("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")


def apply_changes(entity: Entity, quotas: Mapping[str, float], changes: Sequence[QuotaChange]) -> dict[str, float]:
    """Return the quotas of an entity after changes. Raises InvalidQuota."""
    allowed = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    after = dict(quotas)
    for key, value, remove in changes:
        if remove:
            after.pop(key, None)
            continue
        if key not in allowed:
            raise InvalidQuota(f"Invalid configuration key {key}")
        _check_value(key, value)
        after[key] = value
    return after


def duplicate(entity: Entity) -> InvalidQuota:
    """Return the error for an entity that occurs twice in a request."""
    named = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return InvalidQuota(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{named}}})")


def _check_value(key: str, value: float) -> None:
    if not isfinite(value):
        raise InvalidQuota(f"Quota {key} must be a finite number")
    if value <= 0:
        raise InvalidQuota(f"Quota {key} must be greater than 0")
    kind, most = _WHOLE_NUMBERS.get(key, ("", 0))
    if kind:
        if value > most:
            raise InvalidQuota(f"Proposed value for {key} is too large for {'a' if kind == 'LONG' else 'an'} {kind}.")
        if abs(value - round(value)) > _EPSILON:
            raise InvalidQuota(f"{key} cannot be a fractional value.")


def check_filter(components: Sequence[Component]) -> None:
    """Raise InvalidQuota, or UnknownEntityType, for an invalid filter."""
    types: list[str] = []
    for kind, match, name in components:
        if not kind:
            raise InvalidQuota("Invalid empty entity type.")
        if kind in types:
            raise InvalidQuota(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise UnknownEntityType(f"Unsupported entity type {kind}")
        if match == EXACT and name is None:
            raise InvalidQuota("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match in (DEFAULT, ANY) and name is not None:
            which = "DEFAULT" if match == DEFAULT else "SPECIFIED"
            raise InvalidQuota(f"Request specified MATCH_TYPE_{which}, but also specified a match string.")
        if match not in (EXACT, DEFAULT, ANY):
            raise InvalidQuota(f"Unknown match type {match}")
        types.append(kind)
    if IP in types and len(types) > 1:
        raise InvalidQuota(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )


def matching(quotas: Quotas, components: Sequence[Component], *, strict: bool) -> Iterator[Entity]:
    """Iterate over the entities that match all components; with `strict` only those without other parts."""
    for entity in quotas:
        names = dict(entity)
        if (not strict or len(names) == len(components)) and all(
            kind in names and (match == ANY or names[kind] == name) for kind, match, name in components
        ):
            yield entity


class Window(NamedTuple):
    """Windows of a rate: quota.window.num samples of quota.window.size.seconds."""

    samples: int
    size_ms: int


class Rate:
    """Rate per second: totals of windows, each of which begins with the first event after the end of the one before."""

    __slots__ = ("_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: list[list[float]] = []  # [begun, newest event, total], oldest first

    def record(self, value: float, now: int) -> None:
        """Add `value`; a negative one cancels what was recorded."""
        samples = self._samples
        if not samples or now - samples[-1][0] >= self._window.size_ms:
            self._forget(now)
            samples.append([now, now, 0.0])
        samples[-1][1] = now
        samples[-1][2] += value

    def _forget(self, now: int) -> None:
        oldest = self._window.samples * self._window.size_ms
        self._samples[:] = [sample for sample in self._samples if now - sample[1] < oldest]

    def span(self, now: int) -> int:
        """Measured time in ms: to the oldest sample, and never less than all windows but the open one."""
        self._forget(now)
        least, size = self._window.samples - 1, self._window.size_ms
        elapsed = int(now - self._samples[0][0]) if self._samples else 0
        full = elapsed // size
        return max(1, elapsed + max(0, least - full) * size)

    def per_second(self, now: int) -> float:
        """Return the current rate."""
        span = self.span(now)
        return sum(sample[2] for sample in self._samples) / (span / 1000)

    def throttle_ms(self, quota: float, now: int) -> int:
        """Time without traffic, in ms, until the rate is back at `quota`; 0 when it is not above."""
        rate = self.per_second(now)
        return 0 if rate <= quota else round((rate - quota) / quota * self.span(now))

    def is_idle(self, now: int) -> bool:
        """Return whether all samples have expired."""
        self._forget(now)
        return not self._samples


class TokenBucket:
    """Tokens that are added at `quota` a second, at most as many as fit into all windows; below zero when overdrawn."""

    __slots__ = ("_filled_at", "_tokens", "_window")

    def __init__(self, window: Window, quota: float, now: int) -> None:
        self._window = window
        self._filled_at = now
        self._tokens = self._capacity(quota)

    def _capacity(self, quota: float) -> float:
        return self._window.samples * self._window.size_ms / 1000 * quota

    def tokens(self, quota: float, now: int) -> float:
        """Return the tokens as of now."""
        self._tokens = min(self._capacity(quota), self._tokens + (now - self._filled_at) / 1000 * quota)
        self._filled_at = now
        return self._tokens

    def take(self, count: float, quota: float, now: int) -> None:
        """Take tokens, even if the bucket becomes overdrawn."""
        self._tokens = self.tokens(quota, now) - count

    def is_idle(self, quota: float, now: int) -> bool:
        """Return whether the bucket is full, as a new one is."""
        return self.tokens(quota, now) >= self._capacity(quota)

    def throttle_ms(self, quota: float, now: int) -> int:
        """Time in ms until the bucket is no longer overdrawn."""
        return max(0, round(-self.tokens(quota, now) / quota * 1000))


Sharer = tuple[str, str]
"""Key of a shared rate: (user, client id), "" for all users or all clients of one."""


K = TypeVar("K")
V = TypeVar("V")


class QuotaLimits:
    """Limits of one kind by user and client. The most specific quota wins, as in Kafka:

    user and client id, user and any client, user,
    any user and client id, any user and any client, any user,
    client id, any client
    """

    __slots__ = ("_key", "_quotas", "_sharers")

    def __init__(self, key: str, quotas: Quotas) -> None:
        self._key = key
        self._quotas = {entity: values[key] for entity, values in quotas.items() if key in values}
        self._sharers: dict[tuple[str, str], tuple[Sharer, float] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._quotas)

    def of(self, user: str, client_id: str) -> tuple[Sharer, float] | None:
        """Return the key of the rate that a client shares, and its limit; None without a limit."""
        asked = user, client_id
        if asked not in self._sharers:
            if len(self._sharers) > _MOST_LOOK_UPS:
                self._sharers.clear()
            self._sharers[asked] = self._look_up(user, client_id)
        return self._sharers[asked]

    def _look_up(self, user: str, client_id: str) -> tuple[Sharer, float] | None:
        for of_user in (user, None):
            for of_client, sharer in (
                ((CLIENT_ID, client_id), (user, client_id)),
                ((CLIENT_ID, None), (user, client_id)),
            ):
                limit = self._quotas.get((of_client, (USER, of_user)))
                if limit is not None:
                    return sharer, limit
            limit = self._quotas.get(((USER, of_user),))
            if limit is not None:
                return (user, ""), limit
        for name in (client_id, None):
            limit = self._quotas.get(((CLIENT_ID, name),))
            if limit is not None:
                return ("", client_id), limit
        return None


def _newest(known: dict[K, V], key: K, is_idle: Callable[[V], bool]) -> V | None:
    """Remove the value of a key, which is put back as the newest one.

    If it is new, make room: some of the oldest are dropped if they are idle, and begin again as the newest ones otherwise.
    """
    value = known.pop(key, None)
    if value is None and len(known) >= _MOST_IDLE_RATES:
        for oldest in list(islice(known, _LOOKED_AT)):
            kept = known.pop(oldest)
            if not is_idle(kept):
                known[oldest] = kept
        while len(known) >= MOST_RATES:
            del known[next(iter(known))]
    return value


class RateQuota:
    """A quota on a rate, and the measured rates by sharer.

    most_ms  maximum throttle time; below zero without a maximum
    """

    __slots__ = ("_most_ms", "_rates", "_window", "limits")

    def __init__(self, limits: QuotaLimits, window: Window, most_ms: int = -1) -> None:
        self.limits = limits
        self._window = window
        self._most_ms = most_ms
        self._rates: dict[Sharer, Rate] = {}

    def record(self, user: str, client_id: str, value: float, now: int) -> int:
        """Record usage of `value`; returns the throttle time of the client, in ms."""
        quota = self.limits.of(user, client_id)
        if quota is None:
            return 0
        sharer, limit = quota
        rate = _newest(self._rates, sharer, lambda rate: rate.is_idle(now)) or Rate(self._window)
        self._rates[sharer] = rate
        rate.record(value, now)
        throttle_ms = rate.throttle_ms(limit, now)
        return throttle_ms if self._most_ms < 0 else min(throttle_ms, self._most_ms)

    def rates(self, now: int) -> Iterator[tuple[Sharer, float]]:
        """Iterate over the rates, per second, by sharer."""
        for sharer, rate in self._rates.items():
            yield sharer, rate.per_second(now)

    def take_back(self, user: str, client_id: str, value: float, now: int) -> None:
        """Cancel recorded usage."""
        quota = self.limits.of(user, client_id)
        if quota is not None and quota[0] in self._rates:
            self._rates[quota[0]].record(-value, now)


class MutationQuota:
    """The quota on partitions that are created and deleted."""

    __slots__ = ("_buckets", "_window", "limits")

    def __init__(self, limits: QuotaLimits, window: Window) -> None:
        self.limits = limits
        self._window = window
        self._buckets: dict[Sharer, tuple[TokenBucket, float]] = {}
        """Buckets with their limits."""

    def take(self, user: str, client_id: str, count: int, now: int, *, strict: bool) -> tuple[bool, int]:
        """Return whether `count` mutations are allowed, and the throttle time of the client in ms.

        strict  refuse while the bucket is overdrawn; otherwise only throttle, as old clients do not know the error
        """
        limited = self.limits.of(user, client_id)
        if limited is None:
            return True, 0
        sharer, limit = limited
        entry = _newest(self._buckets, sharer, lambda entry: entry[0].is_idle(entry[1], now))
        bucket = TokenBucket(self._window, limit, now) if entry is None else entry[0]
        self._buckets[sharer] = bucket, limit
        if strict and bucket.tokens(limit, now) < 0:
            return False, bucket.throttle_ms(limit, now)
        bucket.take(count, limit, now)
        return True, 0 if strict else bucket.throttle_ms(limit, now)


class ConnectionQuota:
    """Rate limit of new connections by address.

    limits  by address; None is the limit of all other addresses
    """

    __slots__ = ("_rates", "_window", "limits")

    def __init__(self, limits: Mapping[str | None, float], window: Window) -> None:
        self.limits = limits
        self._window = window
        self._rates: dict[str, Rate] = {}

    def record(self, address: str, now: int) -> int:
        """Record a connection; returns the time in ms that it is kept waiting before it is closed. 0 accepts it."""
        limit = self.limits.get(address, self.limits.get(None))
        if limit is None:
            return 0
        rate = _newest(self._rates, address, lambda rate: rate.is_idle(now)) or Rate(self._window)
        self._rates[address] = rate
        rate.record(1, now)
        throttle_ms = min(rate.throttle_ms(limit, now), self._window.size_ms)
        if throttle_ms > 0:
            rate.record(-1, now)
        return throttle_ms
