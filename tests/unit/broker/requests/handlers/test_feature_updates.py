"""UpdateFeatures in a cluster with a broker of an earlier release, and what it changes with eligible leader replicas."""

from types import SimpleNamespace
from typing import Any

from tests.queues import unexpected
from tests.unit.metadata.stores import VirtualTime

from ottla.broker.requests.handlers.update_features import update_features
from ottla.metadata.configs.alteration import BROKER
from ottla.metadata.features import FEATURES, UPGRADE
from ottla.metadata.image import BrokerImage, Image, Liveness
from ottla.metadata.metadata import Metadata
from ottla.metadata.plans.eligibility import FEATURE, has_elr
from ottla.metadata.store import Change, keys
from ottla.metadata.store.memory import SharedMetadata
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import INVALID_UPDATE_VERSION, NONE
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.tasks.scheduler import Scheduler

SUPPORTED = {feature.name: (feature.lowest, feature.highest) for feature in FEATURES}
OLDER = {name: levels for name, levels in SUPPORTED.items() if name != FEATURE}


class Cluster:
    """Broker 1, and a broker 2 of an earlier release, on a store that an earlier release has initialized."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.shared = SharedMetadata(self.time, self.time)
        put = {keys.CLUSTER_ID: b"cluster", keys.METADATA_VERSION: str(keys.NEWEST_METADATA_VERSION).encode()}
        put[keys.live_key(1)] = Liveness("1", 0, 0).encoded()
        self.shared.change(Change(put=put))
        self.register(1, SUPPORTED)
        self.register(2, OLDER)
        random: Any = None
        self.metadata = Metadata(
            self.shared.connect(latency=lambda: 1),
            self.shared.snapshot(),
            random=random,
            tasks=Scheduler(self.time, self.time),
            default_partitions=lambda: 1,
            default_replicas=lambda: 1,
        )
        self.metadata.follow()

    def register(self, node: int, features: dict[str, tuple[int, int]]) -> None:
        """Write the registration of a broker; it need not be live."""
        own = BrokerImage(node, f"b{node}", 9092, None, incarnation=f"{node}", features=features)
        self.shared.change(Change(put={keys.broker_key(node): own.encoded()}))

    def configure(self, name: str, min_isr: str) -> None:
        self.shared.change(Change(put={keys.config_key(BROKER, name): keys.compact({keys.MIN_ISR: min_isr})}))
        self.time.advance(10)

    @property
    def image(self) -> Image:
        return self.metadata.image

    def upgrade(self, *, validate_only: bool = False) -> UpdateFeaturesResponse:
        """Request level 1 of eligible leader replicas at broker 1."""
        update = FeatureUpdateKey(feature=FEATURE, max_version_level=1, upgrade_type=UPGRADE)
        request = UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only)
        request.context = RequestContext(version=2)
        broker: Any = SimpleNamespace(
            image=self.image,
            metadata=self.metadata,
            node_id=1,
            config=SimpleNamespace(static={keys.MIN_ISR: "2"}),
        )
        responses: list[UpdateFeaturesResponse] = []
        coroutine: Any = update_features(request, broker)
        self.metadata.tasks.start(coroutine).then(responses.append, unexpected)
        self.time.advance(0)
        self.time.advance(100)
        (response,) = responses
        return response


def test_an_older_broker_keeps_the_feature_off_until_it_is_upgraded() -> None:
    cluster = Cluster()
    before = cluster.shared.snapshot()
    response = cluster.upgrade()
    assert response.error_code == INVALID_UPDATE_VERSION
    assert response.error_message is not None
    assert response.error_message.endswith(f"for feature {FEATURE}. Broker 2 does not support this feature.")
    assert cluster.shared.snapshot() == before
    assert cluster.upgrade(validate_only=True).error_code == INVALID_UPDATE_VERSION
    cluster.register(2, SUPPORTED)
    cluster.time.advance(10)
    assert cluster.upgrade(validate_only=True).error_code == NONE
    assert not has_elr(cluster.image)
    assert cluster.upgrade().error_code == NONE
    assert has_elr(cluster.image)


def test_the_feature_comes_with_one_value_of_min_insync_replicas_for_all_brokers() -> None:
    cluster = Cluster()
    cluster.register(2, SUPPORTED)
    cluster.configure("1", "1")
    assert cluster.upgrade().error_code == NONE
    assert cluster.image.configs == {(BROKER, ""): {keys.MIN_ISR: "2"}}
