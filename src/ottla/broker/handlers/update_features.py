"""UpdateFeatures: finalize the levels of features (KIP-584).

Authorization
    cluster: ALTER   CLUSTER_AUTHORIZATION_FAILED

Behaviour
    all or none                 the first invalid update fails the request: INVALID_UPDATE_VERSION, Kafka's message
    unknown feature or level    refused
    lower than before           only as a safe or an unsafe downgrade; metadata.version never goes down
    validate only               everything is checked, nothing is changed
    eligible leader replicas    min.insync.replicas gets a value for all brokers, and loses those for single ones

Versions
    0  allow_downgrade, which Kafka ignores now
    1  safe and unsafe downgrade, validate only (KIP-778)
    2  without a result for each feature
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.broker.permission import may_use_cluster
from ottla.metadata import keys
from ottla.metadata.eligibility import FEATURE, required_configs
from ottla.metadata.features import UPGRADE, LevelUpdate, updated
from ottla.metadata.refusal import CHANGED, ChangeResult, Refused
from ottla.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, NONE, error
from ottla.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.security.operations import AclOperation
from ottla.tasks.answers import after
from ottla.tasks.deferred import Answer


@handles(UpdateFeaturesRequest, in_turn=True)
def update_features(request: UpdateFeaturesRequest, broker: Broker) -> Answer[UpdateFeaturesResponse]:
    if not may_use_cluster(request.context, AclOperation.ALTER):
        code = CLUSTER_AUTHORIZATION_FAILED
        return UpdateFeaturesResponse(error_code=code, error_message=error(code).message)
    kinds = request.context.version >= 1
    updates = [
        LevelUpdate(update.feature, update.max_version_level, update.upgrade_type if kinds else UPGRADE)
        for update in request.feature_updates
    ]
    try:
        registered = {
            node: known.features for node, known in broker.image.registered.items() if not broker.metadata.is_single
        }
        levels = updated(broker.image.features, updates, broker.node_id, registered)
    except Refused as refused:
        return UpdateFeaturesResponse(error_code=refused.code, error_message=refused.message)

    def response(change: ChangeResult) -> UpdateFeaturesResponse:
        if change.error_code != NONE:
            return UpdateFeaturesResponse(error_code=change.error_code, error_message=change.error_message)
        results = [UpdatableFeatureResult(feature=update.name, error_message="NONE") for update in updates]
        return UpdateFeaturesResponse(error_message=None, results=results)

    if request.validate_only:
        return response(CHANGED)
    configs = {}
    if levels.get(FEATURE, 0) > 0:
        configs = required_configs(broker.image, int(broker.config.static.get(keys.MIN_ISR, 1)))
    return after(broker.metadata.set_features(levels, configs), response)
