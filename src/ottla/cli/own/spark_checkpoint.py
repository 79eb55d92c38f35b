"""`ottla spark-checkpoint`: write a stream's checkpoint back as plain offsets, for Spark's own Kafka connector."""

from pathlib import Path

import click

from ottla.cli.cluster_access import CommandFailed


@click.command("spark-checkpoint")
@click.argument("checkpoint", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print what would be written, and write nothing.")
def spark_checkpoint(checkpoint: Path, dry_run: bool) -> None:
    """Rewrite a checkpoint of format("ottla") with plain offsets, as Spark's own Kafka connector reads them.

    DIR is the checkpointLocation of a query that is stopped, on a local or mounted file system. Afterwards the query continues
    with format("kafka") where it was; format("ottla") can continue from it as well.
    """
    from ottla.spark.plain_checkpoint import InvalidCheckpoint, plain_rewrites, write

    try:
        rewrites = plain_rewrites(checkpoint)
        if not dry_run:
            write(rewrites)
    except InvalidCheckpoint as error:
        raise CommandFailed(str(error)) from None
    except (OSError, ValueError) as error:
        raise CommandFailed(f"cannot rewrite {checkpoint}: {getattr(error, 'strerror', None) or error}") from None
    for rewrite in rewrites if dry_run else ():
        click.echo(f"{rewrite.path.relative_to(checkpoint)}: {rewrite.text.splitlines()[-1]}")
    verb = "would be rewritten" if dry_run else "rewritten"
    click.echo(f"{len(rewrites)} files {verb}" if rewrites else "the offsets are plain: nothing to write")
