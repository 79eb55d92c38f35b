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
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.metadata import changes
from ottla.metadata.features import UPGRADE, LevelUpdate, updated
from ottla.metadata.image import Image
from ottla.metadata.plans.eligibility import FEATURE, required_configs
from ottla.metadata.store import Change, keys
from ottla.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, NONE, error
from ottla.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.security.operations import AclOperation


@handles(UpdateFeaturesRequest)
async def update_features(request: UpdateFeaturesRequest, broker: Broker) -> UpdateFeaturesResponse:
    if not may_use_cluster(request.context, AclOperation.ALTER):
        code = CLUSTER_AUTHORIZATION_FAILED
        return UpdateFeaturesResponse(error_code=code, error_message=error(code).message)
    kinds = request.context.version >= 1
    updates = [
        LevelUpdate(update.feature, update.max_version_level, update.upgrade_type if kinds else UPGRADE)
        for update in request.feature_updates
    ]

    def plan(image: Image) -> Change:
        registered = {node: known.features for node, known in image.registered.items() if not broker.metadata.is_single}
        levels = updated(image.features, updates, broker.node_id, registered)
        if request.validate_only:
            return Change()
        configs = {}
        if levels.get(FEATURE, 0) > 0:
            configs = required_configs(image, int(broker.config.static.get(keys.MIN_ISR, 1)))
        return changes.set_features(image, levels, configs)

    code, message = await broker.metadata.result_of(plan)
    if code != NONE:
        return UpdateFeaturesResponse(error_code=code, error_message=message)
    results = [UpdatableFeatureResult(feature=update.name, error_message="NONE") for update in updates]
    return UpdateFeaturesResponse(error_message=None, results=results)
