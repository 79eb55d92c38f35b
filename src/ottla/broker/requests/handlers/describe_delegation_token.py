"""DescribeDelegationToken: list tokens with their HMACs (KIP-48, KIP-373).

Behaviour
    owners null                tokens of all owners
    owners                     tokens of which one of them is owner, requester or renewer
    visible to the requester   the tokens that involve it, or that it may describe

Versions
    0
    1
    2
    3  requester of the token
"""

from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.tokens import token_request
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.security.delegation_tokens import DelegationToken, describe, token_hmac
from ottla.security.operations import AclOperation, AclResourceType
from ottla.tasks.deferred import Answer

_FIRST_WITH_REQUESTER: Final = 3


@handles(DescribeDelegationTokenRequest)
def describe_delegation_token(
    request: DescribeDelegationTokenRequest, broker: Broker
) -> Answer[DescribeDelegationTokenResponse]:
    context = request.context
    state = token_request(context, broker)
    owners = None
    if request.owners is not None:
        owners = [f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners]
    code, tokens = describe(
        broker.image.tokens.values(),
        context.principal,
        owners,
        allowed=state.allowed,
        enabled=state.enabled,
        may_describe_token=lambda token_id: context.allowed(
            AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token_id
        ),
        may_describe_tokens_of=lambda owner: context.allowed(AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, owner),
    )
    secret = state.secret or b""
    return DescribeDelegationTokenResponse(
        error_code=code,
        tokens=[_describe(token, token_hmac(secret, token.token_id), context.version) for token in tokens],
    )


def _describe(token: DelegationToken, hmac: bytes, version: int) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    requester = token.requester if version >= _FIRST_WITH_REQUESTER else ""
    requester_type, _, requester_name = requester.partition(":")
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in token.renewers)
        ],
    )
