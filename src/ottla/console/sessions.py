"""Sessions of browsers: user, CSRF token and the notice of the last change. They live in memory, and end with the process."""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from ottla.addresses import network_of
from ottla.environment import Clock, Random

_LIFETIME_MS: Final = 12 * 3600 * 1000
_MOST: Final = 10_000
_MOST_FAILURES: Final = 10
_FAILURES_MS: Final = 60_000


@dataclass(slots=True)
class Session:
    """Session of a browser.

    user      "" before a login
    notice    text for the next page
    by_proxy  the user is that of a proxy's header, and has to be in each request
    """

    id: str
    user: str
    created_ms: int
    notice: str = ""
    by_proxy: bool = False


class Sessions:
    """Sessions by id, and the failed logins of the last minute by address."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._secret = random.bytes16() + random.bytes16()
        self._visitors: dict[str, Session] = {}
        self._users: dict[str, Session] = {}  # apart from visitors: these must not be able to displace them
        self._failures: dict[str, list[int]] = {}
        """Times of failed logins by address; those of a guesser must not keep others out."""

    def get(self, session_id: str) -> Session | None:
        """Return a session that has not expired."""
        session = self._users.get(session_id) or self._visitors.get(session_id)
        if session is not None and self._clock.now_ms() - session.created_ms > _LIFETIME_MS:
            self.end(session_id)
            return None
        return session

    def create(self, user: str = "", *, by_proxy: bool = False) -> Session:
        """Create a session; beyond the limit the oldest one ends."""
        sessions = self._users if user else self._visitors
        while len(sessions) >= _MOST:
            del sessions[next(iter(sessions))]
        session = Session(
            (self._random.bytes16() + self._random.bytes16()).hex(), user, self._clock.now_ms(), by_proxy=by_proxy
        )
        sessions[session.id] = session
        return session

    def end(self, session_id: str) -> None:
        """End a session."""
        self._users.pop(session_id, None)
        self._visitors.pop(session_id, None)

    def csrf_token(self, session: Session) -> str:
        """Return the token that each form of the session carries."""
        return hmac.new(self._secret, session.id.encode(), hashlib.sha256).hexdigest()

    def is_csrf_token(self, session: Session, token: str) -> bool:
        """Return whether a form carries the session's token."""
        return hmac.compare_digest(self.csrf_token(session).encode(), token.encode())

    def begin_login(self, address: str) -> bool:
        """Begin a login from an address; False after ten failures within a minute from there: it must not be tried.

        It counts as a failure until `end_login`, also while the hash of its password is computed: guesses at the same time
        would all pass otherwise.
        """
        now = self._clock.now_ms()
        network = network_of(address)
        failures = [moment for moment in self._failures.pop(network, ()) if now - moment < _FAILURES_MS]
        may_log_in = len(failures) < _MOST_FAILURES
        if may_log_in:
            failures.append(now)
        while len(self._failures) >= _MOST:
            del self._failures[next(iter(self._failures))]
        self._failures[network] = failures
        return may_log_in

    def end_login(self, address: str) -> None:
        """Take back the failure of a login that was accepted."""
        failures = self._failures.get(network_of(address))
        if failures:
            failures.pop()
