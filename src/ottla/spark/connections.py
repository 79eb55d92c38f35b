"""One cluster per config in every process: Spark keeps its Python workers, so they keep their connections.

A worker is forked from a daemon and recycled when idle; connections of another process are never touched.
"""

import os

from ottla.client.cluster import Cluster as Older
from ottla.client.config import ClientConfig
from ottla.spark.cluster import Cluster

_clusters: dict[tuple[int, ClientConfig], Cluster] = {}


def cluster_of(config: ClientConfig) -> Cluster:
    """The cluster of this config in this process."""
    key = os.getpid(), config
    found = _clusters.get(key)
    if found is None:
        found = _clusters[key] = Cluster(config)
    return found


_older: dict[tuple[int, ClientConfig], Older] = {}


def older_cluster_of(config: ClientConfig) -> Older:
    """The same for the sink."""
    return _older.setdefault((os.getpid(), config), Older(config))
