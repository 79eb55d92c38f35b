"""Log lines about refused logins and handshakes: few for each address and reason in a while, with the number of the others.

A client with a wrong password tries again many times a second; another one may give another reason each time.
"""

import logging
from typing import Final

from ottla.addresses import network_of
from ottla.environment import Clock

_logger = logging.getLogger("ottla.broker")
_QUIET_MS: Final = 10_000
_MOST: Final = 1000
"""Number of addresses that are remembered."""
_MOST_REASONS: Final = 5
"""Number of different reasons that are logged for one address in _QUIET_MS."""
_MOST_LINES: Final = 50
"""Number of lines about all addresses in _QUIET_MS."""


class _Refused:
    """Refused logins from one address since `begin_ms`: how often each of the first reasons, and all others."""

    __slots__ = ("begin_ms", "others", "reasons")

    def __init__(self, begin_ms: int) -> None:
        self.begin_ms = begin_ms
        self.reasons: dict[str, int] = {}
        self.others = 0


class RefusedLogins:
    """Writes log lines about refused logins."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_address: dict[str, _Refused] = {}
        self._begin_ms = -_QUIET_MS
        self._lines = 0
        self._unlogged = 0
        """Refused logins that were not logged as there were too many lines about other addresses."""

    def report(self, address: str, reason: str) -> None:
        """Report a refused login, of a client at an address."""
        now_ms = self._clock.now_ms()
        network = network_of(address.removeprefix("/"))
        known = self._by_address.get(network)
        before: _Refused | None = None
        if known is None or now_ms >= known.begin_ms + _QUIET_MS:
            before = known
            self._by_address.pop(network, None)
            while len(self._by_address) >= _MOST:
                del self._by_address[next(iter(self._by_address))]
            known = self._by_address[network] = _Refused(now_ms)
        if reason in known.reasons:
            known.reasons[reason] += 1
        elif len(known.reasons) >= _MOST_REASONS:
            known.others += 1
        else:
            known.reasons[reason] = 0
            self._log(address, reason, before, now_ms)

    def _log(self, address: str, reason: str, before: _Refused | None, now_ms: int) -> None:
        if now_ms >= self._begin_ms + _QUIET_MS:
            self._begin_ms, self._lines = now_ms, 0
        if self._lines >= _MOST_LINES:
            self._unlogged += 1
            return
        self._lines += 1
        count = 0 if before is None else sum(before.reasons.values()) + before.others
        more = f", and {count} times more in the {_QUIET_MS // 1000} s before" if count else ""
        if self._unlogged:
            more += f" (and {self._unlogged} of other clients)"
            self._unlogged = 0
        _logger.info("Failed authentication with %s (%s)%s", address, reason, more)
