"""DescribeUserScramCredentials: API 50, versions 0 (flexible from 0).

Versions by release: 0 in 2.7.
"""

from ottla.protocol.schema import (
    MOST_OF_ADMINISTRATION,
    Array,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    field,
    message,
)


class UserName(Struct):
    name: str = field(String)


@message(api=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"]):
    ELEMENTS = MOST_OF_ADMINISTRATION
    users: list[UserName] | None = field(Array(UserName), nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = field(Int8)
    iterations: int = field(Int32)


class DescribeUserScramCredentialsResult(Struct):
    user: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    credential_infos: list[CredentialInfo] = field(Array(CredentialInfo))


@message(api=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field(Array(DescribeUserScramCredentialsResult))
