"""PushTelemetry: a client's metrics, stored as received (KIP-714).

Behaviour
    an id of zeros, or after its last push    INVALID_REQUEST
    too early                                 THROTTLING_QUOTA_EXCEEDED; a last push is never too early
    another subscription than its own         UNKNOWN_SUBSCRIPTION_ID: the client requests its subscription again
    an unsupported compression                UNSUPPORTED_COMPRESSION_TYPE; not decompressible: INVALID_RECORD
    more than telemetry.max.bytes             TELEMETRY_TOO_LARGE

Versions
    0
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.metadata.refusal import Refused
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.tasks.deferred import Answer


@handles(PushTelemetryRequest)
def push_telemetry(request: PushTelemetryRequest, broker: Broker) -> Answer[PushTelemetryResponse]:
    clock = broker.clock
    try:
        broker.telemetry.push(request, request.context, broker.image, clock.now_ms(), clock.wall_ms())
    except Refused as refused:
        return PushTelemetryResponse(error_code=refused.code)
    return PushTelemetryResponse()
