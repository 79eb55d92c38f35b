"""SaslHandshake: begin a login by SASL (KIP-43, KIP-152).

Behaviour
    on a listener with SASL   answered before it comes here, by `broker/security/login.py`: first login and re-authentication
    otherwise                 ILLEGAL_SASL_STATE: on a listener without SASL, or after a login whose session has no lifetime

Versions
    0  tokens follow as bare frames
    1  tokens follow in SaslAuthenticate requests
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.protocol.errors import ILLEGAL_SASL_STATE
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.tasks.deferred import Answer


@handles(SaslHandshakeRequest)
def sasl_handshake(request: SaslHandshakeRequest, broker: Broker) -> Answer[SaslHandshakeResponse]:
    del request, broker
    return SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE)
