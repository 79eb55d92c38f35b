"""CreateDelegationToken: API 38, versions 0-3 (flexible from 2).

Versions by release: 0 in 1.1, 1 in 2.0, 2 in 2.4, 3 in 3.3.
"""

from ottla.protocol.schema import (
    MOST_OF_ADMINISTRATION,
    Array,
    Bytes,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    field,
    message,
)


class CreatableRenewers(Struct):
    principal_type: str = field(String)
    principal_name: str = field(String)


@message(api=38, versions="0-3", flexible="2+")
class CreateDelegationTokenRequest(Request["CreateDelegationTokenResponse"]):
    ELEMENTS = MOST_OF_ADMINISTRATION
    owner_principal_type: str | None = field(String, versions="3+", nullable="3+")
    owner_principal_name: str | None = field(String, versions="3+", nullable="3+")
    renewers: list[CreatableRenewers] = field(Array(CreatableRenewers))
    max_lifetime_ms: int = field(Int64)


@message(api=38, versions="0-3", flexible="2+")
class CreateDelegationTokenResponse(Response):
    error_code: int = field(Int16)
    principal_type: str = field(String)
    principal_name: str = field(String)
    token_requester_principal_type: str = field(String, versions="3+")
    token_requester_principal_name: str = field(String, versions="3+")
    issue_timestamp_ms: int = field(Int64)
    expiry_timestamp_ms: int = field(Int64)
    max_timestamp_ms: int = field(Int64)
    token_id: str = field(String)
    hmac: bytes = field(Bytes)
    throttle_time_ms: int = field(Int32)
