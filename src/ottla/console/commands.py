"""Commands that do the same as an action of the console, as lines for a shell."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from ottla.client.topics import TopicPartition
from ottla.console.settings import ClusterAccess
from ottla.schemas.registry import MEDIA_TYPE, SchemaRegistry


def command_line(access: ClusterAccess, command: str, *words: str) -> str:
    """Return `ottla COMMAND` with the options of the cluster and further words."""
    return shlex.join(["ottla", command, *access.options, *words])


def topic_regex(topic: str) -> str:
    """Return the regular expression that matches exactly this topic, for the commands that take one."""
    return topic.replace(".", r"\.")


def delete_records_line(access: ClusterAccess, offsets: Mapping[TopicPartition, int]) -> str:
    """Return the command that deletes the records before these offsets."""
    partitions = [
        {"topic": partition.topic, "partition": partition.partition, "offset": offset}
        for partition, offset in sorted(offsets.items())
    ]
    document = json.dumps({"partitions": partitions, "version": 1})
    return (
        f"echo {shlex.quote(document)} | {command_line(access, 'delete-records', '--offset-json-file', '/dev/stdin')}"
    )


def configs_words(added: Mapping[str, str], deleted: Iterable[str]) -> list[str]:
    """Return the options of `ottla configs --alter` for changes; values with commas stand in square brackets."""
    words = []
    if added:
        pairs = (
            f"{name}=[{value}]" if re.search(r"[,\[\]=]", value) else f"{name}={value}" for name, value in added.items()
        )
        words += ["--add-config", ",".join(pairs)]
    names = list(deleted)
    if names:
        words += ["--delete-config", ",".join(names)]
    return words


def registry_line(
    registry: SchemaRegistry,
    method: str,
    path: Iterable[str],
    body: Mapping[str, Any] | None = None,
    *,
    query: str = "",
) -> str:
    """Return the `curl` command of a request to a schema registry; it asks for a password, if there is one."""
    words = ["curl", "--request", method]
    if registry.user is not None:
        words += ["--user", registry.user]
    if body is not None:
        words += ["--header", f"Content-Type: {MEDIA_TYPE}", "--data", json.dumps(body, ensure_ascii=False)]
    return shlex.join([*words, f"{registry.address}/{'/'.join(quote(part, safe='') for part in path)}{query}"])
