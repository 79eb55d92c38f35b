"""ExpireDelegationToken: set the expiry of a token, or delete it (KIP-48).

Behaviour
    neither owner nor renewer    DELEGATION_TOKEN_OWNER_MISMATCH, also for super users
    a period below 0             deletes the token, also an expired one
    otherwise                    the token expires after the period; DELEGATION_TOKEN_EXPIRED if it has
    an unknown HMAC              DELEGATION_TOKEN_NOT_FOUND

Versions
    0
    1
    2
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.broker.tokens import token_request, token_with_hmac
from ottla.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.security.delegation_tokens import expire
from ottla.tasks.answers import after
from ottla.tasks.deferred import Answer


@handles(ExpireDelegationTokenRequest, in_turn=True)
def expire_delegation_token(
    request: ExpireDelegationTokenRequest, broker: Broker
) -> Answer[ExpireDelegationTokenResponse]:
    state = token_request(request.context, broker)
    token = token_with_hmac(bytes(request.hmac), state, broker)
    decision = expire(
        token,
        request.context.principal,
        request.expiry_time_period_ms,
        now_ms=state.now_ms,
        allowed=state.allowed,
        enabled=state.enabled,
    )
    response = ExpireDelegationTokenResponse(error_code=decision.error, expiry_timestamp_ms=decision.expires_ms)
    if token is None or (decision.token is None and not decision.deleted):
        return response
    return after(
        broker.metadata.set_tokens({token.token_id: decision.token}),
        lambda change: (
            response if not change.error_code else ExpireDelegationTokenResponse(error_code=change.error_code)
        ),
    )
