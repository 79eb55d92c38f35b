"""Access tokens as SASL credentials of a client, for OAUTHBEARER (KIP-255): cached, and fetched again before they expire.

    exchange() --- the token is valid ---> exchange with it
        |
        +--------- no token, or it has expired ---> waits for a fetch ---> worker: TokenSource.fetch
                                                              ^
    timer, at about 80 % of the token's lifetime -------------+

A source blocks, so it runs on a worker; its errors that another attempt may mend are retried with a growing backoff. If no
token could be fetched in time, the first login fails with NotAuthenticated. Later ones fail with ConnectionLost, so that a
client that has worked goes on trying.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from ottla.environment import Cancellable, Random, Worker
from ottla.net.errors import ConnectionLost, NotAuthenticated
from ottla.protocol.errors import SASL_AUTHENTICATION_FAILED
from ottla.security.sasl.mechanism import OAUTHBEARER, ClientExchange
from ottla.security.sasl.oauthbearer import OAuthBearerClient
from ottla.tasks.deferred import Deferred, completed
from ottla.tasks.scheduler import Scheduler

_RETRY_AFTER_FAILURE_MS: Final = 10_000
"""Time from a failed refresh, with all its retries, to the next one."""
_MOST_DELAY_MS: Final = 24 * 3_600_000

logger = logging.getLogger("ottla.client")


class AccessToken(NamedTuple):
    """Access token of a client.

    expires_ms  time of its expiry; None if it is unknown, so that the token is used for one login only
    issued_ms   time of its issue, None if it is unknown
    extensions  SASL extensions that are sent with it
    """

    text: str
    expires_ms: int | None
    issued_ms: int | None = None
    extensions: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"AccessToken([hidden], expires_ms={self.expires_ms})"


class TokenError(Exception):
    """A token that could not be fetched: the reason and a remedy in one line.

    may_pass  another attempt may succeed
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class TokenSource(Protocol):
    """Source of access tokens."""

    def fetch(self, now_ms: int) -> AccessToken:
        """Return a token; blocks. Raises TokenError."""


class RefreshSettings(NamedTuple):
    """Configs sasl.login.refresh.* and sasl.login.retry.*."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_ms: int = 60_000
    buffer_ms: int = 300_000
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000

    def refresh_ms(self, token: AccessToken, expires_ms: int, now_ms: int, share: float) -> int:
        """Return the time at which to replace a token.

        share  random number from 0 to 1, the part of the jitter
        """
        window = self.window_factor + self.window_jitter * share
        if now_ms + self.min_period_ms + self.buffer_ms > expires_ms:
            return now_ms + int((expires_ms - now_ms) * window)  # too short a life for minimum period and buffer
        issued_ms = now_ms if token.issued_ms is None else token.issued_ms
        proposed = issued_ms + int((expires_ms - issued_ms) * window)
        return max(min(proposed, expires_ms - self.buffer_ms), now_ms + self.min_period_ms)


class TokenCredentials:
    """Access tokens of a source.

    start_worker  starts the worker that the source runs on
    """

    mechanism: Final = OAUTHBEARER

    def __init__(
        self,
        source: TokenSource,
        settings: RefreshSettings,
        scheduler: Scheduler,
        random: Random,
        start_worker: Callable[[], Worker],
    ) -> None:
        self._source = source
        self._settings = settings
        self._scheduler = scheduler
        self._random = random
        self._start_worker = start_worker
        self._worker: Worker | None = None
        self._token: AccessToken | None = None
        self._waiting: list[Deferred[ClientExchange]] = []
        self._is_fetching = False
        self._has_failed = False
        """The fetch in progress is a retry."""
        self._timer: Cancellable | None = None
        self._closed = False

    def prepare(self) -> Deferred[object]:
        """See `Credentials.prepare`."""
        ready: Deferred[object] = Deferred(self._scheduler)

        def on_exchange(exchange: Deferred[ClientExchange]) -> None:
            if exchange.error is not None:
                ready.fail(exchange.error)
            else:
                ready.complete(None)

        self.exchange().listen(on_exchange)
        return ready

    def exchange(self) -> Deferred[ClientExchange]:
        """See `Credentials.exchange`."""
        token = self._token
        if token is not None and self._is_valid(token) and (not self._is_fetching or self._has_failed):
            return completed(_exchange(token), self._scheduler)
        promise: Deferred[ClientExchange] = Deferred(self._scheduler)
        self._waiting.append(promise)
        self._begin()
        return promise

    def answer(self, exchange: ClientExchange, token: bytes) -> Deferred[bytes | None]:
        """See `Credentials.answer`."""
        return completed(exchange.step(token), self._scheduler)

    def close(self) -> None:
        """See `Credentials.close`."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._worker is not None:
            self._worker.close(cancel=True, wait=False)

    def _is_valid(self, token: AccessToken) -> bool:
        return token.expires_ms is not None and self._scheduler.clock.wall_ms() < token.expires_ms

    def _begin(self) -> None:
        """Begin to fetch a token, unless that has begun already."""
        if not self._is_fetching and not self._closed:
            self._is_fetching = True
            self._has_failed = False
            if self._timer is not None:
                self._timer.cancel()
            self._scheduler.background(self._fetch(), "fetch of an access token")

    async def _fetch(self) -> None:
        """Fetch a token, with retries, for all logins that wait for one."""
        clock, settings = self._scheduler.clock, self._settings
        deadline = clock.now_ms() + settings.backoff_max_ms
        backoff = settings.backoff_ms
        while True:
            outcome = await self._attempt()
            left = deadline - clock.now_ms()
            if isinstance(outcome, AccessToken) or not outcome.may_pass or left <= 0:
                break
            self._has_failed = True
            await self._scheduler.sleep(min(backoff, left))
            backoff *= 2
        self._is_fetching = False
        if isinstance(outcome, AccessToken):
            self._accept(outcome)
        else:
            self._report(outcome)

    def _attempt(self) -> Deferred[AccessToken | TokenError]:
        """Return a promise of the outcome of one attempt; it fails with nothing."""
        if self._worker is None:
            self._worker = self._start_worker()
        promise: Deferred[AccessToken | TokenError] = Deferred(self._scheduler)
        now_ms = self._scheduler.clock.wall_ms()

        def fetch() -> AccessToken | TokenError:
            try:
                token = self._source.fetch(now_ms)
            except TokenError as error:
                return error
            if token.expires_ms is not None and token.expires_ms <= now_ms:
                late = (now_ms - token.expires_ms) / 1000
                return TokenError(
                    f"the access token has expired {late:.0f} s ago (are the clocks right?)", may_pass=True
                )
            return token

        self._worker.run(
            fetch, promise.complete, lambda: promise.complete(TokenError("internal error, which is in the log"))
        )
        return promise

    def _accept(self, token: AccessToken) -> None:
        self._token = token
        if token.expires_ms is not None:
            now = self._scheduler.clock.wall_ms()
            share = self._random.below(1001) / 1000
            self._refresh_in(self._settings.refresh_ms(token, token.expires_ms, now, share) - now)
        waiting, self._waiting = self._waiting, []
        for promise in waiting:
            promise.complete(_exchange(token))

    def _report(self, error: TokenError) -> None:
        """Fail the logins that wait, or use the present token where it is still valid."""
        waiting, self._waiting = self._waiting, []
        token = self._token
        if token is not None:
            logger.warning("cannot renew the access token: %s", error)
            self._refresh_in(_RETRY_AFTER_FAILURE_MS)
        for promise in waiting:
            if token is not None and self._is_valid(token):
                promise.complete(_exchange(token))
            elif token is not None and error.may_pass:
                promise.fail(ConnectionLost(f"no valid access token: {error}"))
            else:
                promise.fail(NotAuthenticated(f"no access token: {error}", SASL_AUTHENTICATION_FAILED))

    def _refresh_in(self, delay_ms: int) -> None:
        if not self._closed:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._scheduler.call_later(min(delay_ms, _MOST_DELAY_MS), self._begin)


def _exchange(token: AccessToken) -> ClientExchange:
    return OAuthBearerClient(token.text, token.extensions)
