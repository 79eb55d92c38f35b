"""Messages of console consumers about a topic or partition that does not exist: they would wait in silence for its records."""

import time
from collections.abc import Mapping
from typing import Any, Final

import click

from ottla.cli.cluster_access import AdminConnection, CommandFailed, first_answer_ms
from ottla.cli.stopping import Stop
from ottla.client.admin.requests import Requests
from ottla.client.errors import RetriableError
from ottla.protocol.errors import UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.metadata import MetadataResponseTopic

_FOREVER_MS: Final = 2**40
_CREATED_S: Final = 1.0
"""Time in which a broker knows a topic that a request has created."""


def check_topic(
    configs: Mapping[str, Any], topic: str, partition: int | None, stop: Stop, *, timeout_ms: int | None
) -> None:
    """Say on standard error if reading a topic creates it, or waits for it. Raises CommandFailed for a missing partition.

    timeout_ms  longest wait for a broker: nothing is said after it
    """
    try:
        _check(configs, topic, partition, stop, first_answer_ms() or timeout_ms or _FOREVER_MS)
    except RetriableError:
        if timeout_ms is None or first_answer_ms() is not None:
            raise


def _check(configs: Mapping[str, Any], topic: str, partition: int | None, stop: Stop, limit_ms: int) -> None:
    with (
        stop.interruptible(),
        AdminConnection(Requests, {name: value for name, value in configs.items() if name != "group.id"}) as cluster,
    ):
        row = _row(cluster, topic, limit_ms)
        if row is None:
            click.echo(
                _create(cluster, topic, limit_ms, creates=str(configs.get("allow.auto.create.topics", "true"))),
                err=True,
            )
            return
        count = len(row.partitions)
        if partition is not None and count and partition not in {part.partition_index for part in row.partitions}:
            last = "" if count == 1 else f" to {count - 1}"
            raise CommandFailed(f"topic {topic} has no partition {partition}: it has 0{last}")


def _row(
    cluster: AdminConnection[Requests], topic: str, limit_ms: int, *, creates: bool = False
) -> MetadataResponseTopic | None:
    """Return the metadata of a topic, with its error; None if it does not exist."""
    metadata = cluster.admin.metadata
    answer = cluster.ask(
        metadata.retrying(f"look up topic {topic}", lambda: metadata.fetch([topic], create=creates), limit_ms)
    )
    for row in answer.topics:
        if row.error_code != UNKNOWN_TOPIC_OR_PARTITION:
            return row
    return None


def _create(cluster: AdminConnection[Requests], topic: str, limit_ms: int, *, creates: str) -> str:
    """Request a topic as the consumer would, which creates it where the broker allows that; return the line about it."""
    if creates.lower() == "false":
        return f"topic {topic} does not exist: waiting for it"
    row = _row(cluster, topic, limit_ms, creates=True)
    deadline = time.monotonic() + _CREATED_S
    while row is None and time.monotonic() < deadline:
        time.sleep(0.05)
        row = _row(cluster, topic, limit_ms)
    if row is None:
        return f"topic {topic} does not exist, and the broker does not create topics that are read: waiting for it"
    return f"topic {topic} did not exist: it was created by reading it"
