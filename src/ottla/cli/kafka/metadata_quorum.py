"""`ottla metadata-quorum`: Kafka's kafka-metadata-quorum: leader, voters and lag of the metadata log."""

import json
import time
from typing import Any, Final

import click

from ottla.addresses import address_text
from ottla.cli.cluster_access import CommandFailed, cluster_options, connect, json_option
from ottla.cli.command_group import CommandGroup
from ottla.cli.table import echo_json, echo_tabbed
from ottla.client.admin.cluster import ClusterRequests
from ottla.client.admin.quorum import MetadataQuorum, QuorumReplica, QuorumRequests

_NO_DIRECTORY: Final = "AAAAAAAAAAAAAAAAAAAAAA"
_TITLES: Final = (
    *("NodeId", "DirectoryId", "LogEndOffset", "Lag"),
    *("LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"),
)


class _QuorumAdmin(QuorumRequests, ClusterRequests):
    """Subset of the admin client for this command."""


@click.group("metadata-quorum", cls=CommandGroup)
@cluster_options
@click.pass_context
def metadata_quorum(ctx: click.Context, bootstrap_server: str | None, command_config: str | None) -> None:
    """Show the quorum of controllers; of Ottla, its metadata store as one, whose voters are the brokers."""
    ctx.obj = (bootstrap_server, command_config)


@metadata_quorum.command("describe")
@click.option("--status", is_flag=True, help="Show a summary of the quorum.")
@click.option("--replication", is_flag=True, help="Show each replica of the metadata log and its lag.")
@click.option("--human-readable", is_flag=True, help="Show the age of timestamps, with --replication.")
@json_option
@click.pass_context
def describe(ctx: click.Context, *, status: bool, replication: bool, human_readable: bool, as_json: bool) -> None:
    """Describe the quorum."""
    if status == replication:
        raise click.UsageError("specify exactly one of --status and --replication")
    if human_readable and not replication:
        raise click.UsageError("--human-readable requires --replication")
    server, file = ctx.obj
    with connect(_QuorumAdmin, server, file) as cluster:
        quorum = cluster.ask(cluster.admin.describe_metadata_quorum())
        leader = next((voter for voter in quorum.voters if voter.replica_id == quorum.leader_id), None)
        if leader is None:
            raise CommandFailed("the metadata quorum has no leader at the moment: try again")
        if status:
            _show_status(quorum, leader, cluster.ask(cluster.admin.describe_cluster()).cluster_id, as_json=as_json)
        else:
            _show_replication(quorum, leader, human_readable=human_readable, as_json=as_json)


def _show_status(quorum: MetadataQuorum, leader: QuorumReplica, cluster_id: str | None, *, as_json: bool) -> None:
    last = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    lag_ms = -1
    if last is leader or last == leader:
        lag_ms = 0
    elif leader.last_caught_up_timestamp is not None and last.last_caught_up_timestamp is not None:
        lag_ms = leader.last_caught_up_timestamp - last.last_caught_up_timestamp
    figures = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - last.log_end_offset,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": [_node(quorum, voter) for voter in quorum.voters],
        "CurrentObservers": [_node(quorum, observer) for observer in quorum.observers],
    }
    if as_json:
        echo_json(figures)
        return
    for name, value in figures.items():
        click.echo(f"{name + ':':<24}{json.dumps(value) if isinstance(value, list) else value}")


def _node(quorum: MetadataQuorum, replica: QuorumReplica) -> dict[str, Any]:
    """Return a replica as Kafka's tool shows it: without what is not known."""
    node: dict[str, Any] = {"id": replica.replica_id}
    if replica.directory_id is not None:
        node["directoryId"] = replica.directory_id
    endpoints = quorum.endpoints.get(replica.replica_id, ())
    if endpoints:
        node["endpoints"] = [f"{end.listener}://{address_text(end.host, end.port)}" for end in endpoints]
    return node


def _show_replication(quorum: MetadataQuorum, leader: QuorumReplica, *, human_readable: bool, as_json: bool) -> None:
    now_ms = time.time_ns() // 1_000_000
    followers = [voter for voter in quorum.voters if voter.replica_id != leader.replica_id]

    def moment(timestamp: int | None) -> Any:
        if timestamp is None:
            return -1
        return f"{max(now_ms - timestamp, 0)} ms ago" if human_readable else timestamp

    rows = [
        (
            replica.replica_id,
            replica.directory_id or _NO_DIRECTORY,
            replica.log_end_offset,
            leader.log_end_offset - replica.log_end_offset,
            moment(replica.last_fetch_timestamp),
            moment(replica.last_caught_up_timestamp),
            role,
        )
        for role, replicas in (("Leader", [leader]), ("Follower", followers), ("Observer", quorum.observers))
        for replica in replicas
    ]
    if as_json:
        echo_json([dict(zip(_TITLES, row, strict=True)) for row in rows])
    else:
        echo_tabbed(_TITLES, rows)
