"""Core of the admin client: combines the requests about all kinds of resources."""

from ottla.client.admin.acls import Acls
from ottla.client.admin.cluster import ClusterRequests
from ottla.client.admin.configs import Configs
from ottla.client.admin.consumer_groups import ConsumerGroups
from ottla.client.admin.groups import GroupRequests
from ottla.client.admin.log_dirs import LogDirs
from ottla.client.admin.quorum import QuorumRequests
from ottla.client.admin.quotas import Quotas
from ottla.client.admin.replicas import ReplicaRequests
from ottla.client.admin.scram import Scram
from ottla.client.admin.share_groups import ShareGroups
from ottla.client.admin.streams_groups import StreamsGroups
from ottla.client.admin.tokens import Tokens
from ottla.client.admin.topics import Topics
from ottla.client.admin.transactions import TransactionRequests
from ottla.client.core import Core
from ottla.client.metrics import MetricValues


class AdminCore(
    Topics,
    Configs,
    GroupRequests,
    ConsumerGroups,
    ShareGroups,
    StreamsGroups,
    ClusterRequests,
    QuorumRequests,
    LogDirs,
    ReplicaRequests,
    Quotas,
    Scram,
    Tokens,
    Acls,
    TransactionRequests,
):
    """Core of an admin client. Every request is a coroutine method."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        core.observe(self.metrics, _no_member_id)

    def metrics(self) -> MetricValues:
        """Return the metrics of the admin client, which it pushes."""
        values = MetricValues()
        tags = (("client-id", str(self.core.config["client.id"])),)
        values.put("admin-client-metrics", tags, self.core.connection_metrics())
        return values

    async def close(self) -> None:
        """Push the metrics for the last time, if they are pushed."""
        await self.core.push_last(int(self.core.config["request.timeout.ms"]))


def _no_member_id() -> str:
    return ""
