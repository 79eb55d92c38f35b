"""`ottla delete-records`: Kafka's kafka-delete-records, with its file and its lines."""

import click

from ottla.cli.cluster_access import CommandFailed, cluster_options, connect, json_option
from ottla.cli.kafka.json_files import check_unique, read_rows, topic_partition_of
from ottla.cli.table import echo_json
from ottla.client.admin.topics import Topics


@click.command("delete-records")
@cluster_options
@click.option(
    "--offset-json-file",
    metavar="FILE",
    required=True,
    help='{"partitions": [{"topic": "t", "partition": 0, "offset": 1}], "version": 1}; offset -1 is the end.',
)
@json_option
def delete_records(
    bootstrap_server: str | None, command_config: str | None, offset_json_file: str, *, as_json: bool
) -> None:
    """Delete the records before the given offsets."""
    rows = read_rows(offset_json_file)
    check_unique([topic_partition_of(row, offset_json_file) for row in rows], offset_json_file)
    offsets = {}
    for row in rows:
        if not isinstance(row.get("offset"), int):
            raise CommandFailed(f"{offset_json_file}: {topic_partition_of(row, offset_json_file)} requires an offset")
        offsets[topic_partition_of(row, offset_json_file)] = row["offset"]
    with connect(Topics, bootstrap_server, command_config, changes=True) as cluster:
        if not as_json:
            click.echo("Executing records delete operation")
        results = cluster.ask(cluster.admin.delete_records(offsets))
    if as_json:
        echo_json(
            [
                {
                    **partition._asdict(),
                    "low_watermark": results.successes.get(partition),
                    "error": str(results.errors[partition]) if partition in results.errors else None,
                }
                for partition in sorted(results)
            ]
        )
    else:
        click.echo("Records delete operation completed:")
        for partition in sorted(results):
            error = results.errors.get(partition)
            outcome = f"low_watermark: {results.successes[partition]}" if error is None else f"error: {error}"
            click.echo(f"partition: {partition}\t{outcome}")
    if results.errors:
        raise CommandFailed(f"records of {len(results.errors)} of {len(results)} partitions were not deleted")
