"""User and password as SASL credentials of a client or broker, for PLAIN and SCRAM."""

from collections.abc import Callable, Mapping
from typing import Final

from ottla.environment import Random, Worker
from ottla.security.sasl.mechanism import PLAIN, AuthenticationFailed, ClientExchange
from ottla.security.sasl.plain import PlainClient
from ottla.security.sasl.scram import TOKEN_AUTHENTICATION, ScramClient
from ottla.tasks.deferred import Deferred, completed
from ottla.tasks.queue import CallbackQueue

_MOST_ITERATIONS_ON_LOOP: Final = 4096
"""Most iterations of SCRAM that run on the event loop: 2 to 3 ms. Users that Kafka's tools create have as many."""


class MissingPassword(ValueError):
    """A login module without a user or password."""


class PasswordCredentials:
    """User and password.

    extensions    extensions of the first message of SCRAM
    start_worker  starts the worker that computes many iterations of SCRAM
    """

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        random: Random,
        start_worker: Callable[[], Worker],
        tasks: CallbackQueue,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self.mechanism = mechanism
        self._user = user
        self._password = password
        self._random = random
        self._extensions = extensions
        self._start_worker = start_worker
        self._tasks = tasks
        self._worker: Worker | None = None

    def replace(self, user: str, password: str) -> None:
        """Set the user and password of later logins."""
        self._user = user
        self._password = password

    def prepare(self) -> Deferred[object]:
        """See `Credentials.prepare`."""
        return completed(None, self._tasks)

    def exchange(self) -> Deferred[ClientExchange]:
        """See `Credentials.exchange`."""
        if self.mechanism == PLAIN:
            return completed(PlainClient(self._user, self._password), self._tasks)
        nonce = self._random.bytes16() + self._random.bytes16()
        exchange = ScramClient(self.mechanism, self._user, self._password, nonce=nonce, extensions=self._extensions)
        return completed(exchange, self._tasks)

    def answer(self, exchange: ClientExchange, token: bytes) -> Deferred[bytes | None]:
        """See `Credentials.answer`."""
        if not isinstance(exchange, ScramClient) or exchange.iterations(token) <= _MOST_ITERATIONS_ON_LOOP:
            return completed(exchange.step(token), self._tasks)
        if self._worker is None:
            self._worker = self._start_worker()
        promise: Deferred[bytes | None] = Deferred(self._tasks)

        def step() -> bytes | AuthenticationFailed | None:
            try:
                return exchange.step(token)
            except AuthenticationFailed as refused:
                return refused

        def on_done(outcome: bytes | AuthenticationFailed | None) -> None:
            if isinstance(outcome, AuthenticationFailed):
                promise.fail(outcome)
            else:
                promise.complete(outcome)

        self._worker.run(
            step, on_done, lambda: promise.fail(AuthenticationFailed("internal error, which is in the log"))
        )
        return promise

    def close(self) -> None:
        """See `Credentials.close`."""
        if self._worker is not None:
            self._worker.close(cancel=True, wait=False)


def password_credentials(
    mechanism: str, options: Mapping[str, str], random: Random, start_worker: Callable[[], Worker], tasks: CallbackQueue
) -> PasswordCredentials:
    """Return the credentials in the options of a JAAS login module. Raises MissingPassword."""
    user, password = options.get("username"), options.get("password")
    if user is None or password is None:
        raise MissingPassword(f"sasl.jaas.config has no username or no password, which {mechanism} requires")
    by_token = options.get(TOKEN_AUTHENTICATION, "").lower() == "true"
    extensions = {TOKEN_AUTHENTICATION: "true"} if by_token else None
    return PasswordCredentials(mechanism, user, password, random, start_worker, tasks, extensions)
