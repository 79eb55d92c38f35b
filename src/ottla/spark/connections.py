"""Cache of one cluster client and one producer per config and process: Spark reuses its Python workers.

Workers are forked from a daemon, so entries are keyed by process id: a child never uses a connection of its parent.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.client.config import ClientConfig
from ottla.spark.cluster import ClusterClient

if TYPE_CHECKING:
    from ottla.client.blocking import Producer

_clusters: dict[tuple[int, ClientConfig], ClusterClient] = {}
_producers: "dict[tuple[int, ClientConfig], Producer]" = {}


def cluster_of(config: ClientConfig) -> ClusterClient:
    """Return the cluster client of this config in this process."""
    key = os.getpid(), config
    cluster = _clusters.get(key)
    if cluster is None:
        cluster = _clusters[key] = ClusterClient(config)
    return cluster


@contextmanager
def producing(config: ClientConfig) -> Iterator["Producer"]:
    """Yield the producer of this config in this process.

    An error in the block closes and discards the producer: its unsent records must not be sent later, and its failed state
    must not affect the next caller.
    """
    from ottla.client.blocking import Producer

    key = os.getpid(), config
    producer = _producers.get(key)
    if producer is None:
        producer = _producers[key] = Producer(config)
    try:
        yield producer
    except BaseException:
        _producers.pop(key, None)
        producer.close(0)
        raise
