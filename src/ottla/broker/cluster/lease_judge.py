"""The end of leases by time, for brokers on one machine: `ottla serve --brokers N`.

The parent process judges: every broker tells it when it has renewed its lease. Only time in which the judge itself runs counts,
so that a stall of the whole machine, such as a suspended laptop or a paused virtual machine, ends no lease.
"""

from typing import Final, NamedTuple

LOOK_MS: Final = 250
"""Interval of looks."""
_LONGEST_STEP_MS: Final = 2 * LOOK_MS
"""Longest time between two looks that counts: what is longer is a stall of the judge, and perhaps of the brokers."""


class _Held(NamedTuple):
    """Lease of a broker; `quiet_ms` is the time since its last renewal that counts."""

    lease: int
    ttl_ms: int
    quiet_ms: int = 0


class LeaseJudge:
    """The leases of brokers, by node id."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._looked_ms = -1

    def note_renewal(self, node: int, lease: int, ttl_ms: int) -> None:
        """Note that a broker has got or renewed a lease; an earlier one counts no more."""
        self._held[node] = _Held(lease, ttl_ms)

    def note_release(self, node: int, lease: int = 0) -> None:
        """Note that a broker has ended a lease itself, or that its process has ended (lease 0)."""
        held = self._held.get(node)
        if held is not None and lease in (0, held.lease):
            del self._held[node]

    def look(self, now_ms: int) -> list[tuple[int, int]]:
        """Return nodes and leases whose time is over, each once. Called every LOOK_MS: a stall between two looks does not
        count.

        now_ms  time of a monotonic clock
        """
        step_ms = 0 if self._looked_ms < 0 else min(now_ms - self._looked_ms, _LONGEST_STEP_MS)
        self._looked_ms = now_ms
        over = []
        for node, held in list(self._held.items()):
            held = held._replace(quiet_ms=held.quiet_ms + step_ms)
            self._held[node] = held
            if held.quiet_ms > held.ttl_ms:
                del self._held[node]
                over.append((node, held.lease))
        return over
