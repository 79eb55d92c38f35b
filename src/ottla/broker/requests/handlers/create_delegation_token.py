"""CreateDelegationToken: create a token with which its owner logs in by SCRAM (KIP-48).

Behaviour
    on a connection that is not authenticated, or is so by a token   DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    without delegation.token.secret.key                              DELEGATION_TOKEN_AUTH_DISABLED
    for another owner                                                requires CREATE_TOKENS on that user (KIP-373)
    an owner or renewer that is not a user                           INVALID_PRINCIPAL_TYPE
    too many tokens of the owner, or renewers                        POLICY_VIOLATION
    lifetime                                                         at most delegation.token.max.lifetime.ms

Versions
    0
    1
    2
    3  an owner other than the requester
"""

from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.tokens import number_of_tokens, token_request
from ottla.metadata import changes
from ottla.protocol.errors import NONE
from ottla.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.security.delegation_tokens import DelegationToken, create, new_token_id, token_hmac
from ottla.security.operations import AclOperation, AclResourceType

_FIRST_WITH_REQUESTER: Final = 3


@handles(CreateDelegationTokenRequest)
async def create_delegation_token(
    request: CreateDelegationTokenRequest, broker: Broker
) -> CreateDelegationTokenResponse:
    context = request.context
    state = token_request(context, broker)
    owner = context.principal
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    decision = create(
        context.principal,
        owner,
        [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
        request.max_lifetime_ms,
        token_id=new_token_id(broker.random.bytes16()),
        limits=state.limits,
        now_ms=state.now_ms,
        allowed=state.allowed,
        enabled=state.enabled,
        existing=number_of_tokens(owner, state, broker),
        may_create_for=lambda other: context.allowed(AclOperation.CREATE_TOKENS, AclResourceType.USER, other),
    )
    token = decision.token
    requester = context.principal if context.version >= _FIRST_WITH_REQUESTER else ""
    if token is None or state.secret is None:
        return _response(decision.error, owner, requester)
    # The id is new: nothing that the decision depends on can make it wrong, but the number of the owner's tokens.
    code, _ = await broker.metadata.result_of(lambda image: changes.set_tokens(image, {token.token_id: token}))
    if code != NONE:
        return _response(code, owner, requester)
    return _response(NONE, owner, requester, token, token_hmac(state.secret, token.token_id))


def _response(
    code: int, owner: str, requester: str, token: DelegationToken | None = None, hmac: bytes = b""
) -> CreateDelegationTokenResponse:
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = requester.partition(":")
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=-1 if token is None else token.issued_ms,
        expiry_timestamp_ms=-1 if token is None else token.expires_ms,
        max_timestamp_ms=-1 if token is None else token.max_ms,
        token_id="" if token is None else token.token_id,
        hmac=hmac,
    )
