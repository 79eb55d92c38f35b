"""ApiVersions: the APIs that this broker serves, their versions, and the features of the cluster.

Behaviour
    a version that is not known here   the answer of version 0, UNSUPPORTED_VERSION and the range of ApiVersions alone
    unstable versions                  with unstable.api.versions.enable
    a client software name or version  that is no identifier: INVALID_REQUEST (from version 3)
    telemetry                          is listed once there is a client-metrics subscription, as Kafka lists it once there is
                                       a reporter: clients that see it keep requesting their subscription

Versions
    3  the client names its software; features (KIP-584)
    4  features with minimum level 0 are shown
    5  the client may name the cluster and node that it intends to reach (KIP-1242)
"""

import re
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.requests.handlers import SERVED
from ottla.metadata.configs.alteration import CLIENT_METRICS
from ottla.metadata.features import FEATURES
from ottla.metadata.features import finalized as levels
from ottla.protocol.api import API_VERSIONS, GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from ottla.protocol.errors import INVALID_REQUEST, NONE, REBOOTSTRAP_REQUIRED, UNSUPPORTED_VERSION
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.tasks.deferred import Answer

_FIRST_WITH_LEVEL_0: Final = 4
_TELEMETRY: Final = (GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY)
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(request: ApiVersionsRequest, broker: Broker) -> Answer[ApiVersionsResponse]:
    version = request.context.version
    if version not in SERVED[API_VERSIONS].versions:
        return ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=[_range(API_VERSIONS, broker)])
    if version >= 3:
        names = request.client_software_name, request.client_software_version
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=INVALID_REQUEST)
        request.context.peer.software_name, request.context.peer.software_version = names
    if version >= 5:
        wrong = _wrong_broker(request, broker)
        if wrong != NONE:
            return ApiVersionsResponse(error_code=wrong)
    supported = [
        SupportedFeatureKey(name=feature.name, min_version=feature.lowest, max_version=feature.highest)
        for feature in FEATURES
        if feature.lowest > 0 or version >= _FIRST_WITH_LEVEL_0
    ]
    finalized = [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in levels(broker.image.features)
    ]
    return ApiVersionsResponse(
        api_keys=[_range(key, broker) for key in sorted(SERVED) if key not in _TELEMETRY or _wants_telemetry(broker)],
        supported_features=supported,
        finalized_features_epoch=broker.image.revision,
        finalized_features=finalized,
    )


def _wants_telemetry(broker: Broker) -> bool:
    return any(kind == CLIENT_METRICS for kind, _ in broker.image.configs)


def _range(key: int, broker: Broker) -> ApiVersion:
    first, last = SERVED[key].versions
    if broker.config.flag("unstable.api.versions.enable"):
        last = max(last, SERVED[key].unstable.last)
    return ApiVersion(api_key=key, min_version=first, max_version=last)


def _wrong_broker(request: ApiVersionsRequest, broker: Broker) -> int:
    """Return the error of a request for another broker; a client must name cluster and node together."""
    if (request.cluster_id is None) != (request.node_id == -1):
        return INVALID_REQUEST
    if request.cluster_id is None:
        return NONE
    if (request.cluster_id, request.node_id) != (broker.image.cluster_id, broker.node_id):
        return REBOOTSTRAP_REQUIRED
    return NONE
