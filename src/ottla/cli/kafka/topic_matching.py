"""Topics that the --topic option of `ottla topics` matches, and the filters of their partitions."""

import re
from collections.abc import Mapping
from typing import Any, Final

import click

from ottla.cli.cluster_access import AdminConnection, CommandFailed
from ottla.client.admin.topics import Topics
from ottla.client.topics import TopicInfo

PARTITION_FILTERS: Final = (
    "under_replicated_partitions",
    "unavailable_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
)
"""Parameters of the options that choose partitions of the topics to describe."""


def matching(cluster: AdminConnection[Topics], options: Mapping[str, Any], *, required: bool = True) -> list[TopicInfo]:
    """Return the topics that match --topic, all without it.

    Raises UsageError for an invalid pattern, and CommandFailed if no topic matches, unless not `required` or --if-exists.
    """
    known = cluster.ask(cluster.admin.list_topics(internal=not options["exclude_internal"]))
    if options["topic"] is None:
        return list(known.values())
    pattern = options["topic"].strip().strip("\"'").replace(",", "|")
    try:
        fits = re.compile(pattern).fullmatch
    except re.error as error:
        raise click.UsageError(f"--topic {options['topic']}: {error}") from None
    matches = [info for info in known.values() if fits(info.name)]
    if required and not matches and not options["if_exists"]:
        raise CommandFailed(f"topic {options['topic']} does not exist")
    return matches
