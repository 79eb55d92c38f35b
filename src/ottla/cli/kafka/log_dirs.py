"""`ottla log-dirs`: Kafka's kafka-log-dirs, whose output is JSON."""

import json
from typing import Any

import click

from ottla.cli.cluster_access import CommandFailed, cluster_options, connect, json_option
from ottla.cli.completion import complete_topics
from ottla.client.admin.cluster import ClusterRequests
from ottla.client.admin.log_dirs import LogDir, LogDirs


class _LogDirsAdmin(LogDirs, ClusterRequests):
    """Subset of the admin client for this command."""


@click.command("log-dirs")
@cluster_options
@click.option("--describe", is_flag=True, help="Describe the log directories.")
@click.option("--topic-list", metavar="T1,T2", default="", help="Only these topics.", shell_complete=complete_topics)
@click.option("--broker-list", metavar="0,1", default="", help="Only these brokers.")
@json_option
def log_dirs(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Show the sizes of partitions in the log directories of brokers, as JSON."""
    if not options["describe"]:
        raise click.UsageError("--describe is required")
    topics = {name for name in options["topic_list"].split(",") if name}
    try:
        brokers = [int(number) for number in options["broker_list"].split(",") if number]
    except ValueError:
        raise click.UsageError(f"--broker-list {options['broker_list']}: must be numbers, as in 0,1") from None
    with connect(_LogDirsAdmin, bootstrap_server, command_config) as cluster:
        known = [node.id for node in cluster.ask(cluster.admin.describe_cluster()).nodes]
        unknown = sorted(set(brokers) - set(known))
        if unknown:
            raise CommandFailed(f"there is no broker {', '.join(map(str, unknown))}, only {', '.join(map(str, known))}")
        nodes = brokers or known
        if not options["as_json"]:
            click.echo("Querying brokers for log directories information")
        results = cluster.ask(cluster.admin.describe_log_dirs(nodes)).check()
    if not options["as_json"]:
        click.echo(f"Received log directory information from brokers {','.join(map(str, nodes))}")
    broker_documents = [
        {
            "broker": node,
            "logDirs": [
                _directory_document(path, directory, topics) for path, directory in sorted(results[node].items())
            ],
        }
        for node in nodes
    ]
    document = {"brokers": broker_documents, "version": 1}
    separators = None if options["as_json"] else (",", ":")
    click.echo(json.dumps(document, indent=2 if options["as_json"] else None, separators=separators))


def _directory_document(path: str, directory: LogDir, topics: set[str]) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "partition": str(partition),
                "size": replica.size,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for partition, replica in sorted(directory.replicas.items())
            if not topics or partition.topic in topics
        ],
        "error": str(directory.error) if directory.error is not None else None,
        "logDir": path,
    }
