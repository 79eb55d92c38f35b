"""SaslAuthenticate: one token of a login by SASL (KIP-152).

Behaviour
    during a login   answered before it comes here, by `broker/security/login.py`
    otherwise        ILLEGAL_SASL_STATE: on a listener without SASL, or after the login

Versions
    0
    1  session lifetime in the response (KIP-368)
    2
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.protocol.errors import ILLEGAL_SASL_STATE
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.tasks.deferred import Answer


@handles(SaslAuthenticateRequest)
def sasl_authenticate(request: SaslAuthenticateRequest, broker: Broker) -> Answer[SaslAuthenticateResponse]:
    del request, broker
    return SaslAuthenticateResponse(
        error_code=ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
