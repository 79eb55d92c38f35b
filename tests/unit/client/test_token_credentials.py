"""Access tokens of a client on virtual time: cached, refreshed before they expire, fetched again after failures."""

import pytest

from ottla.client.errors import ConnectionLost, NotAuthenticated
from ottla.net.token_credentials import AccessToken, RefreshSettings, TokenCredentials, TokenError
from ottla.security.sasl.mechanism import ClientExchange
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Scheduler

from .world import World

HOUR_MS = 3_600_000
SETTINGS = RefreshSettings()


class Source:
    """Tokens t1, t2, ... with a lifetime; or the errors of `failures`, first in, first out."""

    def __init__(self, world: World, lifetime_ms: int | None = HOUR_MS) -> None:
        self.lifetime_ms = lifetime_ms
        self.failures: list[TokenError] = []
        self.fetched: list[int] = []
        self._world = world
        self._issued = 0

    def fetch(self, now_ms: int) -> AccessToken:
        self.fetched.append(self._world.now)
        if self.failures:
            raise self.failures.pop(0)
        self._issued += 1
        expires_ms = None if self.lifetime_ms is None else now_ms + self.lifetime_ms
        return AccessToken(f"t{self._issued}", expires_ms, now_ms, {"tenant": "a"})


class Client:
    def __init__(self, lifetime_ms: int | None = HOUR_MS, settings: RefreshSettings = SETTINGS) -> None:
        self.world = World()
        self.source = Source(self.world, lifetime_ms)
        scheduler = Scheduler(self.world, self.world)
        workers = self.world.workers
        self.credentials = TokenCredentials(
            self.source, settings, scheduler, self.world, lambda: workers.start("login")
        )

    def begin(self) -> Deferred[ClientExchange]:
        return self.credentials.exchange()

    def token(self) -> str:
        """The token of a login now."""
        promise = self.begin()
        self.world.advance(5)
        message = promise.result().initial().decode()
        assert message.endswith("\x01tenant=a\x01\x01")
        return message.removeprefix("n,,\x01auth=Bearer ").partition("\x01")[0]


def test_logins_share_a_token() -> None:
    client = Client()
    promises = [client.begin(), client.begin()]
    client.world.advance(5)
    assert all(promise.done and promise.error is None for promise in promises)
    assert client.token() == "t1"
    assert len(client.source.fetched) == 1


def test_a_token_is_replaced_before_it_expires() -> None:
    client = Client()
    client.token()
    client.world.advance(HOUR_MS * 3 // 4)
    assert client.token() == "t1"
    client.world.advance(HOUR_MS * 3 // 40 + 20_000)  # 82.5 % with the jitter of this world
    assert len(client.source.fetched) == 2
    assert client.token() == "t2"


def test_a_token_without_a_known_expiry_serves_one_login() -> None:
    client = Client(None)
    assert [client.token(), client.token()] == ["t1", "t2"]


@pytest.mark.parametrize(
    ("lifetime_s", "issued_s", "refresh_s"),
    [
        (3600, 0, 2970),  # 82.5 %
        (600, 0, 300),  # not within the last five minutes
        (361, -10_000, 60),  # not within the first
        (100, 0, 82.5),  # too short for either
        (100, -10_000, 82.5),
    ],
)
def test_time_of_the_refresh(lifetime_s: int, issued_s: int, refresh_s: float) -> None:
    now = 10**12
    token = AccessToken("t", now + lifetime_s * 1000, now + issued_s * 1000)
    assert SETTINGS.refresh_ms(token, now + lifetime_s * 1000, now, 0.5) == now + refresh_s * 1000


def test_retries_with_a_growing_backoff() -> None:
    client = Client()
    client.source.failures = [TokenError("busy", may_pass=True)] * 3
    promise = client.begin()
    client.world.advance(1000)
    assert promise.error is None
    assert [moment - client.source.fetched[0] for moment in client.source.fetched] == [0, 101, 302, 703]


def test_without_a_first_token_the_login_fails() -> None:
    client = Client()
    client.source.failures = [TokenError("http://oauth: no answer", may_pass=True)] * 100
    promise = client.begin()
    client.world.advance(9000)
    assert not promise.done
    client.world.advance(2000)
    assert isinstance(promise.error, NotAuthenticated)
    assert str(promise.error) == "no access token: http://oauth: no answer"
    assert len(client.source.fetched) == 8


def test_a_lasting_error_is_not_retried() -> None:
    client = Client()
    client.source.failures = [TokenError("HTTP 401")]
    promise = client.begin()
    client.world.advance(5)
    assert isinstance(promise.error, NotAuthenticated)
    assert client.token() == "t1"  # the next login tries again


def test_an_outage_of_the_oauth_server_after_the_first_token(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(100_000)
    client.token()
    client.source.failures = [TokenError("no answer", may_pass=True)] * 16
    client.world.advance(95_000)
    assert client.token() == "t1"  # still valid, and the server is not waited for
    client.world.advance(5_000)
    promise = client.begin()
    client.world.advance(12_000)
    assert isinstance(promise.error, ConnectionLost)  # retriable: the client goes on trying
    client.world.advance(12_000)
    assert client.token() == "t2"
    assert "cannot renew the access token: no answer" in caplog.text


def test_an_expired_token_is_not_used() -> None:
    client = Client(-5000)
    promise = client.begin()
    client.world.advance(11_000)
    assert str(promise.error) == "no access token: the access token has expired 5 s ago (are the clocks right?)"


def test_no_token_is_fetched_after_close() -> None:
    client = Client()
    client.token()
    client.credentials.close()
    client.world.advance(2 * HOUR_MS)
    assert len(client.source.fetched) == 1


def test_a_token_is_not_in_its_repr() -> None:
    assert "secret" not in repr(AccessToken("secret", 5))
