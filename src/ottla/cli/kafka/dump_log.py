"""`ottla dump-log`: Kafka's kafka-dump-log: readable contents of the files of a partition.

Files are opened read-only, so a broker may use them meanwhile; its newest index entries are still in memory.
"""

from pathlib import Path
from typing import Any, Final

import click

from ottla.cli.cluster_access import CommandFailed, json_option
from ottla.cli.kafka.dumped_indexes import dump_offset_index, dump_time_index, dump_transaction_index
from ottla.cli.kafka.dumped_producers import dump_producers
from ottla.cli.kafka.dumped_records import DECODERS, Dump, LogDumper
from ottla.cli.table import echo_json

_DECODING: Final = {
    "offsets_decoder": "offsets",
    "transaction_log_decoder": "transactions",
    "share_group_state_decoder": "share-group-state",
    "cluster_metadata_decoder": "cluster-metadata",
    "remote_log_metadata_decoder": "remote-log-metadata",
}


@click.command("dump-log")
@click.option("--files", metavar="FILE,...", required=True, help="Files of partitions, comma-separated.")
@click.option("--print-data-log", is_flag=True, help="Show keys and values.")
@click.option("--deep-iteration", is_flag=True, help="Show records, not only batches.")
@click.option("--skip-record-metadata", is_flag=True, help="Print only keys and values of records.")
@click.option("--offsets-decoder", is_flag=True, help="Read records of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Read records of __transaction_state.")
@click.option("--share-group-state-decoder", is_flag=True, help="Read records of __share_group_state.")
@click.option("--cluster-metadata-decoder", is_flag=True, help="Read records of Apache Kafka's __cluster_metadata.")
@click.option("--remote-log-metadata-decoder", is_flag=True, help="Read records of __remote_log_metadata.")
@click.option(
    "--key-decoder-class", metavar="CLASS", help="Show keys and values, keys by this class. [default: StringDecoder]"
)
@click.option(
    "--value-decoder-class",
    metavar="CLASS",
    help="Show keys and values, values by this class. [default: StringDecoder]",
)
@click.option("--verify-index-only", is_flag=True, help="Compare indexes with their log and show mismatches.")
@click.option("--index-sanity-check", is_flag=True, help="Check only what a broker checks at start.")
@click.option("--max-bytes", type=click.IntRange(0), metavar="N", help="Maximum bytes to read of each log.")
@click.option(
    "--max-message-size",
    type=click.IntRange(1),
    metavar="N",
    hidden=True,
    help="Accepted for compatibility; batches contain their size.",
)
@json_option
def dump_log(files: str, **options: Any) -> None:
    """Show the contents of segments, indexes, producer snapshots and metadata snapshots."""
    chosen = [kind for name, kind in _DECODING.items() if options[name]]
    if len(chosen) > 1:
        raise click.UsageError("at most one of the options that end in -decoder")
    for name in ("key_decoder_class", "value_decoder_class"):
        if options[name] is not None and options[name].rpartition(".")[2] not in DECODERS:
            raise click.UsageError(f"{options[name]} is not a decoder; choose from {', '.join(DECODERS)}")
    dumper = LogDumper(chosen[0] if chosen else None, options)
    documents = []
    wrong: list[str] = []
    for name in files.split(","):
        path = Path(name.strip())
        try:
            path.stat()  # a missing file is an error, whatever its suffix
            dump = _dump(path, dumper, options)
        except BrokenPipeError:  # of the output
            raise
        except OSError as error:
            raise CommandFailed(f"cannot read {path}: {error.strerror or error}") from None
        wrong += dump.wrong
        if options["as_json"]:
            documents.append({"file": str(path), "entries": dump.entries, "wrong": dump.wrong})
    if options["as_json"]:
        echo_json(documents)
    if wrong:
        raise CommandFailed(f"{len(wrong)} problems found, the first: {wrong[0]}")


def _dump(path: Path, dumper: LogDumper, options: dict[str, Any]) -> Dump:
    """Dump a file according to its suffix."""
    dump = Dump(path, quiet=options["as_json"])
    dump.line(f"Dumping {path}")
    kind = path.suffix
    verify, sanity = options["verify_index_only"], options["index_sanity_check"]
    if kind in (".log", ".checkpoint") and path.name[:20].isdecimal():
        dumper.dump(path, dump)
    elif kind == ".index":
        dump_offset_index(path, dump, verify=verify, sanity=sanity)
    elif kind == ".timeindex":
        dump_time_index(path, dump, verify=verify, sanity=sanity)
    elif kind == ".txnindex":
        dump_transaction_index(path, dump)
    elif kind == ".snapshot":
        dump_producers(path, dump)
    else:
        dump.line(f"Ignoring unknown file {path}")
    return dump
