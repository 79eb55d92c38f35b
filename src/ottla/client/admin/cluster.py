"""Admin requests about the cluster: its brokers, their API versions, its features."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.arguments import checked_tuple
from ottla.client.admin.requests import Requests, refusal
from ottla.client.admin.results import Results
from ottla.client.errors import KafkaError, Permission, UnsupportedVersion, error_for
from ottla.client.permissions import AclOperation, authorized_operations
from ottla.protocol.errors import NONE, UNSUPPORTED_VERSION
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest


class Node(NamedTuple):
    """A broker; a `fenced` one is registered and serves no clients."""

    id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


class ClusterDescription(NamedTuple):
    """The cluster's id (None before Kafka 0.10.1), its controller (a node, or -1) and its nodes.

    authorized_operations  operations on the cluster that this client is authorized for; None unless requested
    """

    cluster_id: str | None
    controller: int
    nodes: tuple[Node, ...]
    authorized_operations: tuple[AclOperation, ...] | None = None


class FeatureRange(NamedTuple):
    """Range of the levels of a feature, both ends inclusive."""

    min_version: int
    max_version: int


class Features(NamedTuple):
    """Features of a cluster (KIP-584).

    finalized        finalized levels of the cluster, by feature
    finalized_epoch  number that grows with each change of the finalized levels; None if the broker does not return it
    supported        levels supported by the broker that responded, by feature
    """

    finalized: dict[str, FeatureRange]
    finalized_epoch: int | None
    supported: dict[str, FeatureRange]


class UpgradeType(IntEnum):
    """Direction in which a feature level may change; an UNSAFE_DOWNGRADE may lose metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@checked_tuple
class FeatureUpdate(NamedTuple):
    """New level of a feature; 0 disables it."""

    max_version_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class ClusterRequests(Requests):
    """Requests about the cluster."""

    async def describe_cluster(
        self,
        *,
        include_fenced_brokers: bool = False,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> ClusterDescription:
        """Describe the brokers and the controller.

        include_fenced_brokers         since Kafka 4.0
        include_authorized_operations  also return what this client is authorized for (KIP-430; since Kafka 2.8)
        """

        async def attempt() -> ClusterDescription:
            link = await self.metadata.any_link()
            if not (link.serves(DescribeClusterRequest) or include_fenced_brokers or include_authorized_operations):
                answer = await self.metadata.fetch([])
                nodes = [Node(row.node_id, row.host, row.port, row.rack) for row in answer.brokers]
                return ClusterDescription(answer.cluster_id, answer.controller_id, tuple(sorted(nodes)))
            version = link.version(DescribeClusterRequest)
            request = DescribeClusterRequest(
                include_fenced_brokers=include_fenced_brokers,
                include_cluster_authorized_operations=include_authorized_operations,
            )
            response = await link.request(request, version)
            if response.error_code != NONE:
                raise error_for(response.error_code, "describe the cluster", response.error_message)
            nodes = [Node(row.broker_id, row.host, row.port, row.rack, row.is_fenced) for row in response.brokers]
            operations = authorized_operations(response.cluster_authorized_operations)
            return ClusterDescription(response.cluster_id, response.controller_id, tuple(sorted(nodes)), operations)

        return await self.metadata.retrying("describe the cluster", attempt, self.limit_ms(timeout))

    async def api_versions(
        self, nodes: Iterable[int] | None = None, *, timeout: float | None = None
    ) -> Results[int, dict[int, tuple[int, int]]]:
        """Return the API versions of each broker: API key -> (oldest, newest); of all brokers unless some are named."""
        limit = self.limit_ms(timeout)

        async def one(node: int) -> dict[int, tuple[int, int]]:
            link = await self.metadata.retrying(f"connect to {node}", lambda: self.node_link(node), limit)
            return dict(link.versions)

        known = await self.metadata.retrying("list brokers", self.nodes, limit)
        return await self.for_each(known if nodes is None else nodes, one)

    async def describe_features(self, node: int | None = None, *, timeout: float | None = None) -> Features:
        """Describe the features of the cluster, as returned by a node or any broker (KIP-584; since Kafka 2.7)."""

        async def attempt() -> Features:
            link = await (self.metadata.any_link() if node is None else self.node_link(node))
            version = link.version(ApiVersionsRequest, ApiVersionsRequest.VERSIONS.last - 1)
            request = ApiVersionsRequest(client_software_name="ottla", client_software_version="admin")
            answer = await link.request(request, version)
            if answer.error_code != NONE:
                raise error_for(answer.error_code, "describe features")
            return Features(
                {
                    row.name: FeatureRange(row.min_version_level, row.max_version_level)
                    for row in answer.finalized_features
                },
                answer.finalized_features_epoch if answer.finalized_features_epoch >= 0 else None,
                {row.name: FeatureRange(row.min_version, row.max_version) for row in answer.supported_features},
            )

        return await self.metadata.retrying("describe features", attempt, self.limit_ms(timeout))

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False, timeout: float | None = None
    ) -> Results[str, None]:
        """Change the levels of features; since Kafka 4.0 all changes are applied or none."""

        async def ask(names: list[str]) -> dict[str, KafkaError | None]:
            request = UpdateFeaturesRequest(timeout_ms=self.limit_ms(timeout))
            link = await self.metadata.any_link()
            version = link.version(UpdateFeaturesRequest)
            for name in names:
                update = updates[name]
                key = FeatureUpdateKey(feature=name, max_version_level=update.max_version_level)
                if version == 0:
                    if update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
                        raise UnsupportedVersion(f"{link} knows no unsafe downgrade", UNSUPPORTED_VERSION)
                    key.allow_downgrade = update.upgrade_type == UpgradeType.SAFE_DOWNGRADE
                else:
                    key.upgrade_type = update.upgrade_type
                request.feature_updates.append(key)
            request.validate_only = validate_only
            answer = await link.request(request, version)
            of_all = refusal(answer.error_code, "update features", answer.error_message, Permission("Alter", "cluster"))
            outcomes: dict[str, KafkaError | None] = dict.fromkeys(names, of_all)
            if of_all is None:
                for row in answer.results:
                    outcomes[row.feature] = refusal(row.error_code, f"update {row.feature}", row.error_message)
            return outcomes

        return await self.repeating("update features", updates, ask, timeout)

    async def unregister_broker(self, node: int, *, timeout: float | None = None) -> None:
        """Remove the registration of a broker that was decommissioned (KRaft; since Kafka 2.8)."""
        from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest

        async def attempt() -> None:
            answer = await self.metadata.ask(-1, UnregisterBrokerRequest(broker_id=node))
            if answer.error_code != NONE:
                raise error_for(
                    answer.error_code, f"unregister broker {node}", answer.error_message, Permission("Alter", "cluster")
                )

        await self.metadata.retrying(f"unregister broker {node}", attempt, self.limit_ms(timeout))
