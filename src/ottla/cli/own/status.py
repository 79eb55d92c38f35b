"""`ottla status`: one look at a cluster: its brokers, and how many partitions lack replicas or a leader.

Exit code 1 if no broker answers in time, which makes it a readiness probe of the broker at --bootstrap-server; with --healthy
also if a registered broker is fenced, or a partition lacks replicas or a leader.
"""

from collections import Counter
from typing import Final, NamedTuple

import click

from ottla.addresses import address_text
from ottla.cli.authorized_operations import operation_names
from ottla.cli.cluster_access import AdminConnection, CommandFailed, cluster_options, connect, json_option
from ottla.cli.table import Column, as_objects, echo_json, echo_table
from ottla.client.admin.cluster import ClusterDescription, ClusterRequests
from ottla.client.errors import UnsupportedVersion
from ottla.protocol.messages.metadata import MetadataResponse

_COLUMNS: Final = (
    Column("BROKER"),
    Column("ADDRESS"),
    Column("RACK"),
    Column("STATE"),
    Column("LEADERS"),
    Column("REPLICAS"),
    Column("NOT-IN-SYNC"),
)


class _Totals(NamedTuple):
    """Numbers of a cluster.

    fenced            registered brokers that are fenced
    under_replicated  partitions with fewer replicas in sync than replicas, with or without a leader
    leaderless        partitions without a leader
    """

    topics: int
    partitions: int
    fenced: int
    under_replicated: int
    leaderless: int

    @property
    def is_healthy(self) -> bool:
        return not (self.fenced or self.under_replicated or self.leaderless)


@click.command("status")
@cluster_options
@click.option(
    "--healthy", is_flag=True, help="Exit with 1 if a broker is fenced, or partitions lack replicas or a leader."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait.",
)
@json_option
def status(
    bootstrap_server: str | None, command_config: str | None, timeout: float, *, healthy: bool, as_json: bool
) -> None:
    """Show the brokers of a cluster, and how many partitions lack replicas or a leader."""
    with connect(ClusterRequests, bootstrap_server, command_config) as access:
        admin = access.admin
        cluster = _describe_cluster(access, timeout, with_operations=as_json)
        limit_ms = admin.limit_ms(timeout)
        topics = access.ask(admin.metadata.retrying("list topics", lambda: admin.metadata.fetch(None), limit_ms))
    rows, totals = _rows(cluster, topics), _totals(cluster, topics)
    if as_json:
        echo_json(
            {
                "cluster_id": cluster.cluster_id,
                "controller": cluster.controller,
                **totals._asdict(),
                "authorized_operations": operation_names(cluster.authorized_operations),
                "brokers": as_objects(_COLUMNS, rows),
            }
        )
    else:
        click.echo(f"cluster {cluster.cluster_id}, controller {cluster.controller}")
        echo_table(_COLUMNS, rows)
        click.echo(
            f"{totals.topics} topics, {totals.partitions} partitions: {totals.under_replicated} under-replicated, "
            f"{totals.leaderless} without a leader"
        )
    if healthy and not totals.is_healthy:
        raise CommandFailed(
            f"the cluster is not healthy: {totals.fenced} brokers are fenced, {totals.under_replicated} partitions are "
            f"under-replicated, {totals.leaderless} have no leader"
        )


def _describe_cluster(
    access: AdminConnection[ClusterRequests], timeout: float, *, with_operations: bool
) -> ClusterDescription:
    """Describe the cluster as far as its brokers can: fenced ones since Kafka 4.0, authorized operations since 2.8."""
    for include_fenced, include_operations in ((True, with_operations), (False, with_operations)):
        try:
            return access.ask(
                access.admin.describe_cluster(
                    include_fenced_brokers=include_fenced,
                    include_authorized_operations=include_operations,
                    timeout=timeout,
                )
            )
        except UnsupportedVersion:
            continue
    return access.ask(access.admin.describe_cluster(timeout=timeout))


def _rows(cluster: ClusterDescription, topics: MetadataResponse) -> list[tuple[object, ...]]:
    """Return a row for each broker, those included that are only replicas of partitions: they are not registered."""
    leaders, replicas, behind = Counter[int](), Counter[int](), Counter[int]()
    for topic in topics.topics:
        for partition in topic.partitions:
            leaders[partition.leader_id] += 1
            replicas.update(partition.replica_nodes)
            behind.update(set(partition.replica_nodes) - set(partition.isr_nodes))
    rows: list[tuple[object, ...]] = [
        (
            node.id,
            address_text(node.host, node.port),
            node.rack,
            "fenced" if node.fenced else "running",
            leaders[node.id],
            replicas[node.id],
            behind[node.id],
        )
        for node in cluster.nodes
    ]
    unknown = sorted(replicas.keys() - {node.id for node in cluster.nodes})
    rows += [(node, None, None, "missing", 0, replicas[node], behind[node]) for node in unknown]
    return rows


def _totals(cluster: ClusterDescription, topics: MetadataResponse) -> _Totals:
    partitions = [partition for topic in topics.topics for partition in topic.partitions]
    return _Totals(
        len(topics.topics),
        len(partitions),
        sum(node.fenced for node in cluster.nodes),
        sum(len(partition.isr_nodes) < len(partition.replica_nodes) for partition in partitions),
        sum(partition.leader_id < 0 for partition in partitions),
    )
