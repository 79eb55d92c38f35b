"""GetTelemetrySubscriptions: the metrics that a client must push, and the interval (KIP-714).

Behaviour
    an id of zeros               a new id
    repeated too early           THROTTLING_QUOTA_EXCEEDED, unless its last push got UNKNOWN_SUBSCRIPTION_ID
    no subscription matches      no metrics, every five minutes

Versions
    0
"""

from ottla.broker.broker import Broker
from ottla.broker.metrics.telemetry import ACCEPTED_COMPRESSION
from ottla.broker.requests.dispatch import handles
from ottla.metadata.refusal import Refused
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.tasks.deferred import Answer


@handles(GetTelemetrySubscriptionsRequest)
def get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, broker: Broker
) -> Answer[GetTelemetrySubscriptionsResponse]:
    telemetry = broker.telemetry
    try:
        instance_id, subscribed = telemetry.subscribe(
            request.client_instance_id, request.context, broker.image, broker.clock.now_ms()
        )
    except Refused as refused:
        return GetTelemetrySubscriptionsResponse(error_code=refused.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscribed.id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION),
        push_interval_ms=subscribed.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(subscribed.metrics),
    )
