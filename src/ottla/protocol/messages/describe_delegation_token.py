"""DescribeDelegationToken: API 41, versions 0-3 (flexible from 2).

Versions by release: 0 in 1.1, 1 in 2.0, 2 in 2.5, 3 in 3.3.
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


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = field(String)
    principal_name: str = field(String)


@message(api=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest(Request["DescribeDelegationTokenResponse"]):
    ELEMENTS = MOST_OF_ADMINISTRATION
    owners: list[DescribeDelegationTokenOwner] | None = field(Array(DescribeDelegationTokenOwner), nullable="0+")


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = field(String)
    principal_name: str = field(String)


class DescribedDelegationToken(Struct):
    principal_type: str = field(String)
    principal_name: str = field(String)
    token_requester_principal_type: str = field(String, versions="3+")
    token_requester_principal_name: str = field(String, versions="3+")
    issue_timestamp: int = field(Int64)
    expiry_timestamp: int = field(Int64)
    max_timestamp: int = field(Int64)
    token_id: str = field(String)
    hmac: bytes = field(Bytes)
    renewers: list[DescribedDelegationTokenRenewer] = field(Array(DescribedDelegationTokenRenewer))


@message(api=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse(Response):
    error_code: int = field(Int16)
    tokens: list[DescribedDelegationToken] = field(Array(DescribedDelegationToken))
    throttle_time_ms: int = field(Int32)
