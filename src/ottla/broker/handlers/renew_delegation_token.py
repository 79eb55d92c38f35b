"""RenewDelegationToken: move the expiry of a token, at most to its maximum (KIP-48).

Behaviour
    neither owner nor renewer    DELEGATION_TOKEN_OWNER_MISMATCH, also for super users
    an expired token             DELEGATION_TOKEN_EXPIRED
    an unknown HMAC              DELEGATION_TOKEN_NOT_FOUND
    a period of 0 and below      delegation.token.expiry.time.ms

Versions
    0
    1
    2
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.broker.tokens import token_request, token_with_hmac
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.security.delegation_tokens import renew
from ottla.tasks.answers import after
from ottla.tasks.deferred import Answer


@handles(RenewDelegationTokenRequest, in_turn=True)
def renew_delegation_token(
    request: RenewDelegationTokenRequest, broker: Broker
) -> Answer[RenewDelegationTokenResponse]:
    state = token_request(request.context, broker)
    decision = renew(
        token_with_hmac(bytes(request.hmac), state, broker),
        request.context.principal,
        request.renew_period_ms,
        limits=state.limits,
        now_ms=state.now_ms,
        allowed=state.allowed,
        enabled=state.enabled,
    )
    response = RenewDelegationTokenResponse(error_code=decision.error, expiry_timestamp_ms=decision.expires_ms)
    if decision.token is None:
        return response
    return after(
        broker.metadata.set_tokens({decision.token.token_id: decision.token}),
        lambda change: (
            response if not change.error_code else RenewDelegationTokenResponse(error_code=change.error_code)
        ),
    )
