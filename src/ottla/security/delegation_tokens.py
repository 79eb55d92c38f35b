"""Delegation tokens (KIP-48, KIP-373): their secrets, and the rules for creating, renewing, expiring and listing them.

A token is a pair of an id and an HMAC of it, whose key (`delegation.token.secret.key`) all brokers share. A client logs in
with SCRAM: the user is the id, the password the HMAC in base64. No secret of a token is stored, it is computed again.

      issued                 expiry                 maximum
    ----|----------------------|----------------------|------> time
        |<- expiry.time.ms  -->|  renewals move it    |
        |<------------------ max.lifetime.ms -------->|

All decisions return an error code of the protocol, NONE if the request is granted. Principals are texts as `User:alice`.
"""

import base64
import hmac
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.protocol.errors import (
    DELEGATION_TOKEN_AUTH_DISABLED,
    DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN_EXPIRED,
    DELEGATION_TOKEN_NOT_FOUND,
    DELEGATION_TOKEN_OWNER_MISMATCH,
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    INVALID_PRINCIPAL_TYPE,
    NONE,
    POLICY_VIOLATION,
)
from ottla.security.scram import LEAST_ITERATIONS, ScramCredential, base36, credential, salt_password

MOST_TOKENS: Final = 1000
"""Maximum number of tokens of one owner."""
MOST_RENEWERS: Final = 100
"""Maximum number of renewers of one token."""
USER: Final = "User:"
"""Begin of the principals that own tokens: a login by SCRAM is always that of a user."""
LAST_MS: Final = 2**63 - 1
"""Latest time that a field of the protocol holds: a token that could live longer ends then, as in Kafka."""
ANONYMOUS: Final = "User:ANONYMOUS"
NOT_ALLOWED_EXPIRY_MS: Final = -1
"""Expiry in the answers to requests that are not allowed on their connection; that of all other errors is 0."""


class DelegationToken(NamedTuple):
    """A delegation token, without its secret."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def encoded(self) -> bytes:
        """Return the value of its key in the metadata store."""
        fields = {"format": 1, **self._asdict()}
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, value: bytes) -> "DelegationToken":
        """Return the inverse of `encoded`."""
        fields = json.loads(value)
        token = cls(*(fields[name] for name in cls._fields))
        # Earlier releases stored times beyond LAST_MS, with which no response could be encoded.
        expires_ms, max_ms = min(token.expires_ms, LAST_MS), min(token.max_ms, LAST_MS)
        return token._replace(renewers=tuple(fields["renewers"]), expires_ms=expires_ms, max_ms=max_ms)

    def involves(self, principal: str) -> bool:
        """Return True if a principal is owner, requester or renewer."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def may_be_changed_by(self, principal: str) -> bool:
        """Return True if a principal may renew and expire the token."""
        return principal == self.owner or principal in self.renewers

    def is_expired(self, now_ms: int) -> bool:
        """Return True if the token may be removed."""
        return self.max_ms < now_ms or self.expires_ms < now_ms


class TokenLimits(NamedTuple):
    """Settings delegation.token.max.lifetime.ms and delegation.token.expiry.time.ms."""

    max_lifetime_ms: int = 604_800_000
    expiry_time_ms: int = 86_400_000


class Decision(NamedTuple):
    """Answer to a request about a token.

    error       code of the protocol
    token       the token as it is to be stored; None if nothing is to be stored
    deleted     the token is to be deleted
    expires_ms  expiry to be answered
    """

    error: int
    token: DelegationToken | None = None
    deleted: bool = False
    expires_ms: int = 0


def new_token_id(random: bytes) -> str:
    """Return the id of a new token, a UUID as 22 characters in base64, from 16 random bytes."""
    uuid = bytearray(random)
    if len(uuid) != 16:
        raise ValueError("An id needs 16 random bytes")
    uuid[6] = uuid[6] & 0x0F | 0x40
    uuid[8] = uuid[8] & 0x3F | 0x80
    if uuid[0] >> 2 == 62:  # "-" at the beginning would look like an option to command line tools
        uuid[0] &= 0x7F
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def token_hmac(secret: bytes, token_id: str) -> bytes:
    """Return the HMAC of a token's id, 64 bytes. The secret is delegation.token.secret.key in UTF-8."""
    return hmac.digest(secret, token_id.encode(), "sha512")


def token_credential(secret: bytes, token_id: str, mechanism: int) -> ScramCredential:
    """Return the credential of a token for a SCRAM mechanism. Takes some milliseconds: 4096 rounds of the hash."""
    salt = base36(hmac.digest(secret, f"{mechanism} {token_id}".encode(), "sha512")).encode()
    password = base64.b64encode(token_hmac(secret, token_id))
    return credential(mechanism, salt, salt_password(mechanism, password, salt, LEAST_ITERATIONS), LEAST_ITERATIONS)


class TokenIndex:
    """Tokens by HMAC, and their numbers by owner. An HMAC is computed once for each token."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._tokens: Mapping[str, DelegationToken] = {}
        self._hmacs: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}
        self._counts: Counter[str] = Counter()

    def update(self, tokens: Mapping[str, DelegationToken]) -> None:
        """Replace the tokens, which are those of the current metadata by id."""
        if tokens is self._tokens:
            return
        for token_id in self._hmacs.keys() - tokens.keys():
            del self._ids[self._hmacs.pop(token_id)]
        for token_id in tokens.keys() - self._hmacs.keys():
            value = self._hmacs[token_id] = token_hmac(self._secret, token_id)
            self._ids[value] = token_id
        self._counts = Counter(token.owner for token in tokens.values())
        self._tokens = tokens

    def find(self, value: bytes) -> DelegationToken | None:
        """Return the token with an HMAC."""
        token_id = self._ids.get(value)
        return None if token_id is None else self._tokens[token_id]

    def count(self, owner: str) -> int:
        """Return the number of tokens of an owner."""
        return self._counts[owner]


def requests_allowed(principal: str, security_protocol: str, *, by_token: bool) -> bool:
    """Return True if a connection may send requests about tokens: its client is known, and not by a token itself.

    security_protocol  PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
    """
    if by_token or security_protocol == "PLAINTEXT":
        return False
    return security_protocol != "SSL" or principal != ANONYMOUS


def create(
    requester: str,
    owner: str,
    renewers: Sequence[str],
    requested_ms: int,
    *,
    token_id: str,
    limits: TokenLimits,
    now_ms: int,
    allowed: bool,
    enabled: bool,
    may_create_for: Callable[[str], bool],
    existing: int = 0,
) -> Decision:
    """Decide on CreateDelegationToken.

    requested_ms    requested maximal lifetime; 0 and below is the maximum of the server
    allowed         result of `requests_allowed`
    enabled         there is a secret key
    may_create_for  CREATE_TOKENS on a user, by its principal
    existing        number of tokens that the owner has
    """
    if not allowed:
        return Decision(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if owner != requester and not may_create_for(owner):
        return Decision(DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if not all(principal.startswith(USER) for principal in (owner, *renewers)):
        return Decision(INVALID_PRINCIPAL_TYPE)
    if not enabled:
        return Decision(DELEGATION_TOKEN_AUTH_DISABLED)
    if existing >= MOST_TOKENS or len(renewers) > MOST_RENEWERS:
        return Decision(POLICY_VIOLATION)
    lifetime_ms = min(limits.max_lifetime_ms, requested_ms) if requested_ms > 0 else limits.max_lifetime_ms
    max_ms = min(now_ms + lifetime_ms, LAST_MS)
    expires_ms = min(max_ms, now_ms + limits.expiry_time_ms)
    token = DelegationToken(token_id, owner, requester, tuple(renewers), now_ms, expires_ms, max_ms)
    return Decision(NONE, token, expires_ms=expires_ms)


def _refusal(token: DelegationToken | None, *, allowed: bool, enabled: bool) -> Decision | None:
    if not allowed:
        return Decision(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expires_ms=NOT_ALLOWED_EXPIRY_MS)
    if not enabled:
        return Decision(DELEGATION_TOKEN_AUTH_DISABLED)
    return Decision(DELEGATION_TOKEN_NOT_FOUND) if token is None else None


def renew(
    token: DelegationToken | None,
    principal: str,
    period_ms: int,
    *,
    limits: TokenLimits,
    now_ms: int,
    allowed: bool,
    enabled: bool,
) -> Decision:
    """Decide on RenewDelegationToken of the token with the HMAC of the request.

    period_ms  time from now to the new expiry; 0 and below is delegation.token.expiry.time.ms, which is also the maximum
    """
    refusal = _refusal(token, allowed=allowed, enabled=enabled)
    if refusal is not None or token is None:
        return refusal or Decision(DELEGATION_TOKEN_NOT_FOUND)
    if token.is_expired(now_ms):
        return Decision(DELEGATION_TOKEN_EXPIRED)
    if not token.may_be_changed_by(principal):
        return Decision(DELEGATION_TOKEN_OWNER_MISMATCH)
    lifetime_ms = min(limits.expiry_time_ms, period_ms) if period_ms > 0 else limits.expiry_time_ms
    expires_ms = min(token.max_ms, now_ms + lifetime_ms)
    return Decision(NONE, token._replace(expires_ms=expires_ms), expires_ms=expires_ms)


def expire(
    token: DelegationToken | None, principal: str, period_ms: int, *, now_ms: int, allowed: bool, enabled: bool
) -> Decision:
    """Decide on ExpireDelegationToken of the token with the HMAC of the request.

    period_ms  time from now to the new expiry; below 0 deletes the token, also an expired one
    """
    refusal = _refusal(token, allowed=allowed, enabled=enabled)
    if refusal is not None or token is None:
        return refusal or Decision(DELEGATION_TOKEN_NOT_FOUND)
    if not token.may_be_changed_by(principal):
        return Decision(DELEGATION_TOKEN_OWNER_MISMATCH)
    if period_ms < 0:
        return Decision(NONE, deleted=True, expires_ms=now_ms)
    if token.is_expired(now_ms):
        return Decision(DELEGATION_TOKEN_EXPIRED)
    expires_ms = min(token.max_ms, now_ms + period_ms)
    return Decision(NONE, token._replace(expires_ms=expires_ms), expires_ms=expires_ms)


def describe(
    tokens: Iterable[DelegationToken],
    principal: str,
    owners: Sequence[str] | None,
    *,
    allowed: bool,
    enabled: bool,
    may_describe_token: Callable[[str], bool],
    may_describe_tokens_of: Callable[[str], bool],
) -> tuple[int, list[DelegationToken]]:
    """Decide on DescribeDelegationToken; returns the error code and the visible tokens.

    owners                  only tokens in which one of these is involved; None for all
    may_describe_token      DESCRIBE on a token, by its id
    may_describe_tokens_of  DESCRIBE_TOKENS on a user, by its principal
    """
    if not allowed:
        return DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, []
    if not enabled:
        return DELEGATION_TOKEN_AUTH_DISABLED, []
    return NONE, [
        token
        for token in tokens
        if (owners is None or any(token.involves(owner) for owner in owners))
        and (token.involves(principal) or may_describe_token(token.token_id) or may_describe_tokens_of(token.owner))
    ]
