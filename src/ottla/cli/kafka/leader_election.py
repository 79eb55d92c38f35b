"""`ottla leader-election`: Kafka's kafka-leader-election."""

from typing import Any

import click

from ottla.cli.cluster_access import CommandFailed, cluster_options, connect, json_option
from ottla.cli.completion import complete_topics
from ottla.cli.kafka.json_files import check_unique, read_rows, topic_partition_of
from ottla.cli.properties import selected_options, warn_if_deprecated
from ottla.cli.table import echo_json
from ottla.client.admin.replicas import ElectionType, ReplicaRequests
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import ELECTION_NOT_NEEDED

_SCOPES = ("topic", "all-topic-partitions", "path-to-json-file")


@click.command("leader-election")
@cluster_options
@click.option("--admin.config", "old_config", metavar="FILE", help="Old name of --command-config.")
@click.option(
    "--election-type",
    type=click.Choice(["preferred", "unclean"], case_sensitive=False),
    required=True,
    help="PREFERRED: the first replica; UNCLEAN: any live replica where there is no leader.",
)
@click.option("--topic", metavar="TOPIC", help="The topic, with --partition.", shell_complete=complete_topics)
@click.option("--partition", type=int, metavar="N", help="The partition.")
@click.option("--all-topic-partitions", is_flag=True, help="All partitions that need an election.")
@click.option("--path-to-json-file", metavar="FILE", help='{"partitions": [{"topic": "t", "partition": 1}]}.')
@json_option
def leader_election(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Elect leaders of partitions."""
    warn_if_deprecated("--admin.config", "--command-config")
    if len(selected_options(_SCOPES)) != 1:
        raise click.UsageError(f"exactly one of {', '.join(f'--{option}' for option in _SCOPES)}")
    if (options["topic"] is None) != (options["partition"] is None):
        raise click.UsageError("--topic and --partition go together")
    partitions: list[TopicPartition] | None = None
    if options["topic"] is not None:
        partitions = [TopicPartition(options["topic"], options["partition"])]
    elif options["path_to_json_file"] is not None:
        path = options["path_to_json_file"]
        partitions = [topic_partition_of(row, path) for row in read_rows(path)]
        check_unique(partitions, path)
    kind = ElectionType[options["election_type"].upper()]
    with connect(ReplicaRequests, bootstrap_server, command_config or options["old_config"], changes=True) as cluster:
        results = cluster.ask(cluster.admin.elect_leaders(kind, partitions))
    elected = sorted(results.successes)
    needless = sorted(partition for partition, error in results.errors.items() if error.code == ELECTION_NOT_NEEDED)
    failed = {partition: error for partition, error in sorted(results.errors.items()) if partition not in needless}
    if options["as_json"]:
        echo_json(
            {
                "elected": [partition._asdict() for partition in elected],
                "not_needed": [partition._asdict() for partition in needless],
                "failed": [{**partition._asdict(), "error": str(error)} for partition, error in failed.items()],
            }
        )
    else:
        if elected:
            click.echo(f"Successfully completed leader election ({kind.name}) for partitions {_list_text(elected)}")
        if needless:
            click.echo(f"Valid replica already elected for partitions {_list_text(needless)}")
        for partition, error in failed.items():
            click.echo(f"Error completing leader election ({kind.name}) for partition: {partition}: {error}")
    if failed:
        raise CommandFailed(f"{len(failed)} replica(s) could not be elected")


def _list_text(partitions: list[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
