"""Delegation tokens of the cluster on this broker: their logins, requests about them, and the removal of expired ones.

Tokens exist on clusters whose brokers have delegation.token.secret.key, all the same one.
"""

import logging
from typing import Final, NamedTuple

from ottla.broker.broker import Broker
from ottla.metadata import changes
from ottla.protocol.context import RequestContext
from ottla.security.delegation_tokens import (
    USER,
    DelegationToken,
    TokenIndex,
    TokenLimits,
    requests_allowed,
    token_credential,
)
from ottla.security.sasl.scram import TokenCredential
from ottla.security.scram import ScramCredential
from ottla.tasks.periodic import Periodic

_logger = logging.getLogger("ottla.broker")
_MOST_CREDENTIALS: Final = 1000


class TokenRequest(NamedTuple):
    """State that a decision about a token depends on besides its request.

    allowed  the connection may send requests about tokens
    secret   key of the HMACs; None if tokens are disabled
    limits   lifetimes of tokens
    now_ms   time since the epoch
    """

    allowed: bool
    secret: bytes | None
    limits: TokenLimits
    now_ms: int

    @property
    def enabled(self) -> bool:
        """True if there is a secret key."""
        return self.secret is not None


def token_secret(broker: Broker) -> bytes | None:
    """Return the key of the HMACs, None if tokens are disabled."""
    text = broker.config.text("delegation.token.secret.key")
    return text.encode() if text else None


def token_request(context: RequestContext, broker: Broker) -> TokenRequest:
    """Return the state that a decision about a token depends on."""
    config = broker.config
    limits = TokenLimits(
        config.integer("delegation.token.max.lifetime.ms"), config.integer("delegation.token.expiry.time.ms")
    )
    allowed = requests_allowed(context.principal, context.protocol, by_token=context.token_id is not None)
    return TokenRequest(allowed, token_secret(broker), limits, broker.clock.wall_ms())


def token_with_hmac(hmac: bytes, state: TokenRequest, broker: Broker) -> DelegationToken | None:
    """Return the token with an HMAC, None without one or if the request is refused anyway."""
    if not state.allowed or state.secret is None:
        return None
    return _index(broker, state.secret).find(hmac)


def number_of_tokens(owner: str, state: TokenRequest, broker: Broker) -> int:
    """Return the number of tokens of an owner."""
    return 0 if state.secret is None else _index(broker, state.secret).count(owner)


def _index(broker: Broker, secret: bytes) -> TokenIndex:
    """Return the index of the current tokens."""
    if broker.token_index is None:
        broker.token_index = TokenIndex(secret)
    broker.token_index.update(broker.image.tokens)
    return broker.token_index


class TokenLogins:
    """Credentials of delegation tokens, which are computed at their first login and kept."""

    def __init__(self, broker: Broker, secret: bytes) -> None:
        self._broker = broker
        self._secret = secret
        self._credentials: dict[tuple[str, int], ScramCredential] = {}

    def login(self, token_id: str, mechanism: int) -> TokenCredential | None:
        """Return the login of a token; None if there is no such token, or its owner is not a user.

        Only users log in by SCRAM: a token of `Group:admin`, which Kafka may have created, would log in as `User:admin`.
        """
        token = self._broker.image.tokens.get(token_id)
        if token is None or not token.owner.startswith(USER):
            return None
        credential = self._credentials.get((token_id, mechanism))
        if credential is None:
            if len(self._credentials) >= _MOST_CREDENTIALS:
                self._credentials.clear()
            credential = token_credential(self._secret, token_id, mechanism)
            self._credentials[token_id, mechanism] = credential
        return TokenCredential(credential, token.owner.partition(":")[2], token.expires_ms)


def begin_removal(broker: Broker) -> Periodic:
    """Begin to remove expired tokens, at intervals of delegation.token.expiry.check.interval.ms."""
    interval_ms = broker.config.integer("delegation.token.expiry.check.interval.ms")
    removal = Periodic(
        "removal of expired delegation tokens", lambda: remove_expired(broker), interval_ms, broker.tasks
    )
    removal.run_in(interval_ms)
    return removal


def remove_expired(broker: Broker) -> None:
    """Remove the tokens that have expired, on the controller of the cluster."""
    if broker.controller_id != broker.node_id:
        return
    now_ms = broker.clock.wall_ms()
    expired = [token_id for token_id, token in broker.image.tokens.items() if token.is_expired(now_ms)]
    if expired:
        _logger.info("removing %d expired delegation tokens", len(expired))
        removal = broker.metadata.result_of(lambda image: changes.set_tokens(image, dict.fromkeys(expired)))
        broker.tasks.background(removal, "removal of expired delegation tokens")
