"""A broker of a cluster that starts on metadata which was restored from a backup."""

from collections.abc import Callable

import pytest

from ottla.broker.lifecycle import CannotStart
from ottla.metadata.store.memory import SharedMetadata
from ottla.testing import KafkaCluster


def test_a_start_on_older_metadata_is_refused(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(2)
    taken = cluster.metadata.snapshot()
    cluster.create_topic("t")
    cluster.create_topic("u")
    for node in (1, 2):
        cluster.stop(node)
    restored: SharedMetadata = cluster.metadata
    restored._entries = {entry.key: entry for entry in taken.entries if "/live/" not in entry.key}
    restored.revision = taken.revision
    restored.compact()
    with pytest.raises(CannotStart, match=r"older than what this broker has applied.*--accept-older-metadata"):
        cluster.restart(1)
