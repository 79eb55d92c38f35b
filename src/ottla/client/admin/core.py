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
