"""Admin requests that create, renew, expire and describe delegation tokens (KIP-48, KIP-373; since Kafka 1.1).

Principals are texts like `User:alice`. A client logs in with a token by SCRAM: its user is the token's id, its password the
HMAC in base64, and sasl.jaas.config has `tokenauth="true"`.
"""

import base64
from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.admin.requests import Requests
from ottla.client.errors import Permission, error_for
from ottla.protocol.errors import NONE
from ottla.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

_UNKNOWN = ""
"""Requester in answers of brokers before Kafka 3.3."""


class DelegationToken(NamedTuple):
    """Delegation token; times are ms since the epoch.

    hmac       secret of the token
    requester  creator of the token, empty from brokers before Kafka 3.3
    renewers   principals that may renew and expire the token, beside the owner
    """

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int

    @property
    def password(self) -> str:
        """Return the password of a login with the token: its HMAC in base64."""
        return base64.b64encode(self.hmac).decode()

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id}, owner={self.owner}, expiry_ms={self.expiry_ms})"


def _parts(principal: str) -> tuple[str, str]:
    """Return type and name of a principal. Raises ValueError."""
    kind, colon, name = principal.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"{principal!r} is no principal like User:alice")
    return kind, name


def _text(kind: str, name: str) -> str:
    return f"{kind}:{name}" if kind or name else _UNKNOWN


def _permission(owner: str | None) -> tuple[Permission, ...]:
    """Return the permission to create a token for another owner."""
    return () if owner is None else (Permission("CreateTokens", "user-principal", (owner,)),)


class Tokens(Requests):
    """Requests about delegation tokens."""

    async def create_delegation_token(
        self,
        *,
        renewers: Iterable[str] = (),
        owner: str | None = None,
        max_lifetime_ms: int = -1,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Create a token. Raises KafkaError, and ValueError for malformed principals.

        renewers         principals that may renew the token
        owner            principal of sessions with the token, by default that of this client
        max_lifetime_ms  -1: delegation.token.max.lifetime.ms of the broker
        """
        renewing = tuple(renewers)
        request = CreateDelegationTokenRequest(
            owner_principal_type=None,
            owner_principal_name=None,
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(_parts, renewing)
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        if owner is not None:
            request.owner_principal_type, request.owner_principal_name = _parts(owner)
        about = "create a delegation token"
        answer = await self.anywhere(about, request, timeout)
        if answer.error_code != NONE:
            raise error_for(answer.error_code, about, None, *_permission(owner))
        return DelegationToken(
            answer.token_id,
            bytes(answer.hmac),
            _text(answer.principal_type, answer.principal_name),
            _text(answer.token_requester_principal_type, answer.token_requester_principal_name),
            renewing,
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
        )

    async def renew_delegation_token(
        self, hmac: bytes, *, renew_period_ms: int = -1, timeout: float | None = None
    ) -> int:
        """Move the expiry of a token; return it in ms since the epoch. Raises KafkaError.

        renew_period_ms  time from now to the expiry; -1: delegation.token.expiry.time.ms of the broker
        """
        about = "renew a delegation token"
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms)
        answer = await self.anywhere(about, request, timeout)
        if answer.error_code != NONE:
            raise error_for(answer.error_code, about)
        return answer.expiry_timestamp_ms

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_period_ms: int = -1, timeout: float | None = None
    ) -> int:
        """Set the expiry of a token, or delete it; return its expiry in ms since the epoch. Raises KafkaError.

        expiry_period_ms  time from now to the expiry; -1: the token is deleted at once
        """
        about = "expire a delegation token"
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_period_ms)
        answer = await self.anywhere(about, request, timeout)
        if answer.error_code != NONE:
            raise error_for(answer.error_code, about)
        return answer.expiry_timestamp_ms

    async def describe_delegation_token(
        self, owners: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[DelegationToken]:
        """Describe the tokens of these owners, or (None) all that this client may see. Raises KafkaError, ValueError."""
        about = "describe delegation tokens"
        listed = None
        if owners is not None:
            listed = [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in map(_parts, owners)
            ]
        answer = await self.anywhere(about, DescribeDelegationTokenRequest(owners=listed), timeout)
        if answer.error_code != NONE:
            raise error_for(answer.error_code, about)
        return [_token_from(token) for token in answer.tokens]


def _token_from(token: DescribedDelegationToken) -> DelegationToken:
    return DelegationToken(
        token.token_id,
        bytes(token.hmac),
        _text(token.principal_type, token.principal_name),
        _text(token.token_requester_principal_type, token.token_requester_principal_name),
        tuple(_text(renewer.principal_type, renewer.principal_name) for renewer in token.renewers),
        token.issue_timestamp,
        token.expiry_timestamp,
        token.max_timestamp,
    )
