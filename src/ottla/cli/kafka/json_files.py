"""JSON files with the partitions of a command, in the layouts of Kafka's tools."""

import json
from pathlib import Path
from typing import Any

from ottla.cli.cluster_access import CommandFailed
from ottla.client.topics import TopicPartition


def read_rows(path: str, key: str = "partitions") -> list[dict[str, Any]]:
    """Read the list `key` of {"version": 1, `key`: [...]}. Raises CommandFailed."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    except json.JSONDecodeError as error:
        raise CommandFailed(f"{path} is not valid JSON: {error}") from None
    rows = document.get(key) if isinstance(document, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise CommandFailed(f'{path}: expected {{"version": 1, "{key}": [...]}}')
    if document.get("version", 1) != 1:
        raise CommandFailed(f"{path}: unsupported version {document['version']}, must be 1")
    return rows


def topic_partition_of(row: dict[str, Any], path: str) -> TopicPartition:
    """Return the partition of a row. Raises CommandFailed."""
    topic, partition = row.get("topic"), row.get("partition")
    if not isinstance(topic, str) or not isinstance(partition, int):
        raise CommandFailed(f"{path}: {json.dumps(row)} requires a topic and a partition")
    return TopicPartition(topic, partition)


def check_unique(partitions: list[TopicPartition], path: str) -> None:
    """Check that no partition is listed twice. Raises CommandFailed."""
    twice = sorted({str(partition) for partition in partitions if partitions.count(partition) > 1})
    if twice:
        raise CommandFailed(f"{path} names {', '.join(twice)} twice")
