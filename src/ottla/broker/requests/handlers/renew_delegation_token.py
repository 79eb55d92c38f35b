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
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.tokens import token_request, token_with_hmac
from ottla.metadata import changes
from ottla.metadata.image import Image
from ottla.metadata.refusal import Refused
from ottla.metadata.store import Change
from ottla.protocol.errors import NONE
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.security.delegation_tokens import renew


@handles(RenewDelegationTokenRequest)
async def renew_delegation_token(request: RenewDelegationTokenRequest, broker: Broker) -> RenewDelegationTokenResponse:
    state = token_request(request.context, broker)
    expires_ms, error = 0, NONE

    def plan(image: Image) -> Change:
        nonlocal expires_ms, error
        decision = renew(
            token_with_hmac(bytes(request.hmac), state, broker),
            request.context.principal,
            request.renew_period_ms,
            limits=state.limits,
            now_ms=state.now_ms,
            allowed=state.allowed,
            enabled=state.enabled,
        )
        expires_ms, error = decision.expires_ms, decision.error
        if decision.token is None:
            raise Refused(decision.error, None)
        return changes.set_tokens(image, {decision.token.token_id: decision.token})

    code, _ = await broker.metadata.result_of(plan)
    if code != error:  # the change could not be made
        return RenewDelegationTokenResponse(error_code=code)
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms)
