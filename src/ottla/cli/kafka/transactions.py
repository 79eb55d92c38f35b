"""`ottla transactions`: Kafka's kafka-transactions: show transactions, and abort hanging ones."""

import time
from collections.abc import Mapping
from typing import Any, Final

import click

from ottla.cli.cluster_access import AdminConnection, CommandFailed, cluster_options, connect, json_option
from ottla.cli.command_group import CommandGroup
from ottla.cli.completion import complete_topics
from ottla.cli.table import echo_json, echo_tabbed
from ottla.client.admin.cluster import ClusterRequests
from ottla.client.admin.topics import Topics
from ottla.client.admin.transactions import AbortTransactionSpec, HangingTransaction, TransactionRequests
from ottla.client.topics import TopicPartition

_MINUTE_MS: Final = 60_000
_LISTED: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_DESCRIBED: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
_PRODUCERS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
_HANGING: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)


class _TransactionsAdmin(TransactionRequests, Topics, ClusterRequests):
    """Subset of the admin client for this command."""


@click.group("transactions", cls=CommandGroup)
@cluster_options
@click.pass_context
def transactions(ctx: click.Context, bootstrap_server: str | None, command_config: str | None) -> None:
    """Show transactions, and abort hanging ones."""
    ctx.obj = (bootstrap_server, command_config)


_topic_option = click.option(
    "--topic", metavar="TOPIC", required=True, help="The topic.", shell_complete=complete_topics
)
_partition_option = click.option("--partition", type=int, metavar="N", required=True, help="The partition.")


def _show(titles: tuple[str, ...], rows: list[tuple[Any, ...]], *, as_json: bool) -> None:
    if as_json:
        echo_json([dict(zip(map(_key, titles), row, strict=True)) for row in rows])
    else:
        echo_tabbed(titles, rows)


def _key(title: str) -> str:
    """Return the key in JSON: "producer_id" for "ProducerId"."""
    words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in title).strip("_")
    return words.replace("(min)", "_min")


@transactions.command("list")
@click.option(
    "--duration-filter", type=int, default=-1, metavar="MS", help="Only transactions that have been open for longer."
)
@click.option("--transactional-id-pattern", metavar="REGEX", help="Only ids that match (RE2).")
@json_option
@click.pass_obj
def list_(
    where: tuple[str | None, str | None], *, duration_filter: int, transactional_id_pattern: str | None, as_json: bool
) -> None:
    """List transactional ids."""
    with connect(_TransactionsAdmin, *where) as cluster:
        results = cluster.ask(
            cluster.admin.list_transactions(
                duration_ms=duration_filter, transactional_id_pattern=transactional_id_pattern or None
            )
        ).check()
    rows = [
        (transaction.transactional_id, node, transaction.producer_id, transaction.state)
        for node, listed in results.items()
        for transaction in listed
    ]
    _show(_LISTED, sorted(rows), as_json=as_json)


@transactions.command("describe")
@click.option("--transactional-id", metavar="ID", required=True, help="The transactional id.")
@json_option
@click.pass_obj
def describe(where: tuple[str | None, str | None], transactional_id: str, *, as_json: bool) -> None:
    """Show the state of a transactional id."""
    with connect(_TransactionsAdmin, *where) as cluster:
        transaction = cluster.ask(cluster.admin.describe_transactions([transactional_id])).check()[transactional_id]
    duration = None if transaction.start_time_ms is None else time.time_ns() // 1_000_000 - transaction.start_time_ms
    topic_partitions = sorted(transaction.partitions)
    row = (
        transaction.coordinator_id,
        transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.state,
        transaction.transaction_timeout_ms,
        transaction.start_time_ms,
        duration,
        [topic_partition._asdict() for topic_partition in topic_partitions]
        if as_json
        else ",".join(map(str, topic_partitions)),
    )
    _show(_DESCRIBED, [row], as_json=as_json)


@transactions.command("describe-producers")
@_topic_option
@_partition_option
@click.option("--broker-id", type=int, metavar="N", help="Replica to query; the leader if omitted.")
@json_option
@click.pass_obj
def describe_producers(
    where: tuple[str | None, str | None], topic: str, partition: int, broker_id: int | None, *, as_json: bool
) -> None:
    """Show the producers of a partition."""
    topic_partition = TopicPartition(topic, partition)
    with connect(_TransactionsAdmin, *where) as cluster:
        producers = cluster.ask(cluster.admin.describe_producers([topic_partition], broker_id=broker_id)).check()[
            topic_partition
        ]
    rows = [
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch if producer.coordinator_epoch is not None else -1,
            producer.last_sequence,
            producer.last_timestamp,
            producer.current_transaction_start_offset,
        )
        for producer in producers
    ]
    _show(_PRODUCERS, rows, as_json=as_json)


@transactions.command("abort")
@_topic_option
@_partition_option
@click.option("--start-offset", type=int, metavar="N", help="First offset of the transaction in the partition.")
@click.option("--producer-id", type=int, metavar="N", help="The producer id (brokers before Kafka 3.0).")
@click.option("--producer-epoch", type=int, metavar="N", help="The epoch of the producer (brokers before Kafka 3.0).")
@click.option("--coordinator-epoch", type=int, metavar="N", help="The coordinator's epoch (brokers before Kafka 3.0).")
@json_option
@click.pass_obj
def abort(
    where: tuple[str | None, str | None], /, topic: str, partition: int, *, as_json: bool, **options: Any
) -> None:
    """Abort a hanging transaction in a partition."""
    topic_partition = TopicPartition(topic, partition)
    spec_fields = [options[name] for name in ("producer_id", "producer_epoch", "coordinator_epoch")]
    if options["start_offset"] is None and None in spec_fields:
        raise click.UsageError(
            "specify the transaction by --start-offset, or by --producer-id, --producer-epoch and "
            "--coordinator-epoch (for brokers before Kafka 3.0)"
        )
    with connect(_TransactionsAdmin, *where, changes=True) as cluster:
        if options["start_offset"] is None:
            spec = AbortTransactionSpec(topic_partition, *spec_fields)
        else:
            spec = _transaction_at(cluster, topic_partition, options["start_offset"])
        cluster.ask(cluster.admin.abort_transaction(spec))
    if as_json:
        echo_json({"aborted": {**topic_partition._asdict(), "producer_id": spec.producer_id}})


def _transaction_at(
    cluster: AdminConnection[_TransactionsAdmin], topic_partition: TopicPartition, start_offset: int
) -> AbortTransactionSpec:
    """Return the transaction that begins at an offset. Raises CommandFailed."""
    for producer in cluster.ask(cluster.admin.describe_producers([topic_partition])).check()[topic_partition]:
        if producer.current_transaction_start_offset == start_offset:
            return HangingTransaction(topic_partition, producer).abort_spec
    raise CommandFailed(f"no open transaction begins at offset {start_offset} of {topic_partition}")


@transactions.command("find-hanging")
@click.option("--broker-id", type=int, metavar="N", help="Only partitions with a replica on this broker.")
@click.option(
    "--max-transaction-timeout",
    type=int,
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="Minimum age of a hanging transaction.",
)
@click.option("--topic", metavar="TOPIC", help="Only this topic.", shell_complete=complete_topics)
@click.option("--partition", type=int, metavar="N", help="Only this partition of it.")
@json_option
@click.pass_obj
def find_hanging(where: tuple[str | None, str | None], /, *, as_json: bool, **options: Any) -> None:
    """Find transactions that are open in a partition but unknown to their coordinator."""
    if options["topic"] is None and (options["broker_id"] is None or options["partition"] is not None):
        raise click.UsageError("find-hanging requires --topic, or --broker-id without --partition")
    now = time.time_ns() // 1_000_000
    with connect(_TransactionsAdmin, *where) as cluster:
        topic_partitions = _topic_partitions(cluster, options)
        hanging = cluster.ask(
            cluster.admin.find_hanging_transactions(
                topic_partitions,
                older_than_ms=options["max_transaction_timeout"] * _MINUTE_MS,
                broker_id=options["broker_id"],
            )
        )
    rows = [
        (
            candidate.partition.topic,
            candidate.partition.partition,
            candidate.producer.producer_id,
            candidate.producer.producer_epoch,
            candidate.producer.coordinator_epoch if candidate.producer.coordinator_epoch is not None else -1,
            candidate.producer.current_transaction_start_offset,
            candidate.producer.last_timestamp,
            (now - candidate.producer.last_timestamp) // _MINUTE_MS,
        )
        for candidate in hanging
    ]
    _show(_HANGING, rows, as_json=as_json)


def _topic_partitions(cluster: AdminConnection[_TransactionsAdmin], options: Mapping[str, Any]) -> list[TopicPartition]:
    """Return the partitions to search. Raises KafkaError for an unknown topic, CommandFailed for an unknown partition of it."""
    names = [options["topic"]] if options["topic"] is not None else sorted(cluster.ask(cluster.admin.list_topics()))
    described = cluster.ask(cluster.admin.describe_topics(names)).check()
    node = options["broker_id"]
    matching = [
        TopicPartition(topic.name, part.partition)
        for topic in described.values()
        for part in topic.partitions
        if (node is None or node in part.replicas) and options["partition"] in (None, part.partition)
    ]
    if options["topic"] is not None and not matching:
        if node is not None:
            raise CommandFailed(f"broker {node} has no such partition of topic {options['topic']}")
        raise CommandFailed(f"topic {options['topic']} has no such partition")
    return matching


@transactions.command("forceTerminateTransaction")
@click.option("--transactionalId", "transactional_id", metavar="ID", required=True, help="The transactional id.")
@json_option
@click.pass_obj
def force_terminate(where: tuple[str | None, str | None], transactional_id: str, *, as_json: bool) -> None:
    """Abort the open transaction of a transactional id, and fence its producer."""
    with connect(_TransactionsAdmin, *where, changes=True) as cluster:
        cluster.ask(cluster.admin.force_terminate_transaction(transactional_id))
    if as_json:
        echo_json({"terminated": transactional_id})
