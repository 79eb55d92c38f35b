"""UpdateFeatures: finalize the levels of features (KIP-584).

Behaviour
    all or none                 the first invalid update fails the request: INVALID_UPDATE_VERSION, Kafka's message
    unknown feature or level    refused
    lower than before           only as a safe or an unsafe downgrade; metadata.version never goes down
    validate only               everything is checked, nothing is changed

Versions
    0  allow_downgrade, which Kafka ignores now
    1  safe and unsafe downgrade, validate only (KIP-778)
    2  without a result for each feature
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.metadata.features import UPGRADE, LevelUpdate, updated
from ottla.metadata.refusal import CHANGED, ChangeResult, Refused
from ottla.protocol.answer import Answer, after
from ottla.protocol.errors import NONE
from ottla.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


@handles(UpdateFeaturesRequest, in_turn=True)
def update_features(request: UpdateFeaturesRequest, broker: Broker) -> Answer[UpdateFeaturesResponse]:
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

    return response(CHANGED) if request.validate_only else after(broker.metadata.set_features(levels), response)
