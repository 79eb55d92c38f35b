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
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.tokens import token_request, token_with_hmac
from ottla.metadata import changes
from ottla.metadata.image import Image
from ottla.metadata.refusal import Refused
from ottla.metadata.store import Change
from ottla.protocol.errors import NONE
from ottla.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.security.delegation_tokens import expire


@handles(ExpireDelegationTokenRequest)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, broker: Broker
) -> ExpireDelegationTokenResponse:
    state = token_request(request.context, broker)
    expires_ms, error = 0, NONE

    def plan(image: Image) -> Change:
        nonlocal expires_ms, error
        token = token_with_hmac(bytes(request.hmac), state, broker)
        decision = expire(
            token,
            request.context.principal,
            request.expiry_time_period_ms,
            now_ms=state.now_ms,
            allowed=state.allowed,
            enabled=state.enabled,
        )
        expires_ms, error = decision.expires_ms, decision.error
        if token is None or (decision.token is None and not decision.deleted):
            raise Refused(decision.error, None)
        return changes.set_tokens(image, {token.token_id: decision.token})

    code, _ = await broker.metadata.result_of(plan)
    if code != error:  # the change could not be made
        return ExpireDelegationTokenResponse(error_code=code)
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms)
