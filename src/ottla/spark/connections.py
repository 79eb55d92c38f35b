"""One cluster and one producer per config in every process: Spark keeps its Python workers, so they keep their connections.

A worker is forked from a daemon and recycled when idle; connections of another process are never touched.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.client.config import ClientConfig
from ottla.spark.cluster import Cluster

if TYPE_CHECKING:
    from ottla.client.blocking import Producer

_clusters: dict[tuple[int, ClientConfig], Cluster] = {}
_producers: "dict[tuple[int, ClientConfig], Producer]" = {}


def cluster_of(config: ClientConfig) -> Cluster:
    """The cluster of this config in this process."""
    key = os.getpid(), config
    found = _clusters.get(key)
    if found is None:
        found = _clusters[key] = Cluster(config)
    return found


@contextmanager
def producing(config: ClientConfig) -> Iterator["Producer"]:
    """The producer of this config in this process. After an error it is none any more: what it has taken and not sent is not
    to come later, and what broke it is not to break the next one who asks."""
    from ottla.client.blocking import Producer

    key = os.getpid(), config
    found = _producers.get(key)
    if found is None:
        found = _producers[key] = Producer(config)
    try:
        yield found
    except BaseException:
        _producers.pop(key, None)
        found.close(0)
        raise
