"""Log lines about refused logins and handshakes: one for each address and reason in a while, with the number of the others.

A client with a wrong password tries again many times a second.
"""

import logging
from typing import Final

from ottla.environment import Clock

_logger = logging.getLogger("ottla.broker")
_QUIET_MS: Final = 10_000
_MOST: Final = 1000
"""Number of addresses and reasons that are remembered."""


class RefusedLogins:
    """Writes log lines about refused logins."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet: dict[tuple[str, str], tuple[int, int]] = {}
        """(address, reason) -> time in ms until which it is not logged again, and how often it has happened since."""

    def report(self, address: str, reason: str) -> None:
        """Report a refused login, of a client at an address."""
        now_ms = self._clock.now_ms()
        until_ms, count = self._quiet.get((address, reason), (0, 0))
        if now_ms < until_ms:
            self._quiet[address, reason] = until_ms, count + 1
            return
        if len(self._quiet) >= _MOST:
            self._quiet.clear()
        self._quiet[address, reason] = now_ms + _QUIET_MS, 0
        more = f", and {count} times more in the {_QUIET_MS // 1000} s before" if count else ""
        _logger.info("Failed authentication with %s (%s)%s", address, reason, more)
