"""One cluster and one producer per config in every process: Spark keeps its Python workers, so they keep their connections.

A worker is forked from a daemon and recycled when idle; connections of another process are never touched.
"""

import os
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


def producer_of(config: ClientConfig) -> "Producer":
    """The producer of this config in this process."""
    from ottla.client.blocking import Producer

    key = os.getpid(), config
    found = _producers.get(key)
    if found is None:
        found = _producers[key] = Producer(config)
    return found


def forget_producer(config: ClientConfig) -> None:
    """End the producer of this config: what it has not sent is never sent."""
    producer = _producers.pop((os.getpid(), config), None)
    if producer is not None:
        producer.close(0)
