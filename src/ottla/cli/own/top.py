"""`ottla top`: live view of brokers, topics and groups of a cluster, with rates and lag."""

import json
import sys
import time
from contextlib import nullcontext
from typing import Any, Protocol

import click

from ottla.cli.cluster_access import AdminConnection, cluster_options, connect
from ottla.cli.own.cluster_figures import SORTS, ClusterSample, Figures, figures
from ottla.cli.own.top_tables import cell_texts, tables
from ottla.cli.stopping import Stop, stop_on_signals
from ottla.cli.table import Column, echo_table
from ottla.client.admin.cluster import ClusterRequests
from ottla.client.admin.consumer_groups import ConsumerGroups
from ottla.client.admin.groups import GroupRequests, ListedGroup
from ottla.client.admin.log_dirs import LogDirs
from ottla.client.admin.share_groups import ShareGroups
from ottla.client.admin.topics import Topics
from ottla.client.errors import KafkaError, UnsupportedVersion
from ottla.client.topics import LATEST, TopicPartition
from ottla.extras import install_command

_TIMEOUT_S = 10.0
"""Request timeout; partitions, brokers and groups without an answer are omitted from a sample."""


@click.command("top")
@cluster_options
@click.option(
    "--interval", type=float, default=2.0, show_default=True, metavar="SECONDS", help="Time between two updates."
)
@click.option(
    "--iterations", type=click.IntRange(1), metavar="N", help="Number of updates after which to stop; none if omitted."
)
@click.option("--sort", type=click.Choice(SORTS), default="bytes", show_default=True, help="Sort order.")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def top(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Watch brokers, topics and groups: sizes, rates and lag.

    On a terminal q or Ctrl-C ends it; piped, or with --json, one report follows the other. Rates are the growth of end
    offsets, of log directories, and of committed offsets.
    """
    if options["interval"] <= 0:
        raise click.UsageError("--interval must be positive")
    with (
        connect(_TopAdmin, bootstrap_server, command_config) as cluster,
        stop_on_signals() as stop,
        _display(options, stop) as display,
    ):
        _watch(_Sampler(cluster, internal=options["internal"]), display, options, stop)


class Display(Protocol):
    """Output of figures."""

    def first(self, shown: Figures) -> None:
        """Show the first sample, without rates."""

    def show(self, shown: Figures) -> None:
        """Show figures with rates."""

    def show_error(self, why: str) -> None:
        """Show an error of the cluster."""

    def wait(self, seconds: float) -> None:
        """Wait for the next sample, or until a stop is requested."""


def _display(options: dict[str, Any], stop: Stop) -> Any:
    """Return the screen on a terminal if rich is installed, otherwise text output."""
    if options["as_json"] or not sys.stdout.isatty():
        return nullcontext(_TextDisplay(stop, as_json=options["as_json"]))
    try:
        from ottla.cli.own.top_screen import Screen
    except ImportError:
        click.echo(f"The refreshing screen needs rich: {install_command('top')} (tables follow)", err=True)
        return nullcontext(_TextDisplay(stop, as_json=False))
    return Screen(stop)


def _watch(sampler: "_Sampler", display: Display, options: dict[str, Any], stop: Stop) -> None:
    """Sample and show in a loop. An error in the first sample fails the command, later ones are shown."""
    with stop.interruptible():
        before = sampler.sample()
        display.first(figures(None, before, options["sort"]))
    count = 0
    while options["iterations"] is None or count < options["iterations"]:
        display.wait(options["interval"])
        if stop.requested:
            return
        count += 1
        with stop.interruptible():
            try:
                now = sampler.sample()
            except KafkaError as error:
                display.show_error(str(error))
                continue
            display.show(figures(before, now, options["sort"]))
            before = now


class _TextDisplay:
    """Output as consecutive tables or JSON lines."""

    def __init__(self, stop: Stop, *, as_json: bool) -> None:
        self._stop = stop
        self._as_json = as_json

    def first(self, shown: Figures) -> None:
        """Print nothing: each report has rates."""

    def show(self, shown: Figures) -> None:
        """Print a report."""
        moment = time.time_ns() // 1_000_000
        if self._as_json:
            click.echo(json.dumps({"timestamp": moment, **shown.document()}, separators=(",", ":")))
        else:
            click.echo(
                f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(moment / 1000))} cluster {shown.cluster_id}"
            )
            for titles, rows in tables(shown):
                click.echo()
                texts = [cell_texts(titles, row) for row in rows] if sys.stdout.isatty() else rows
                echo_table([Column(title) for title in titles], texts)
            for line in shown.trouble:
                click.echo(line, err=True)
            click.echo()
        sys.stdout.flush()

    def show_error(self, why: str) -> None:
        """Print an error instead of a report."""
        click.echo(f"ottla: {why}", err=True)

    def wait(self, seconds: float) -> None:
        """Wait until the next report is due."""
        self._stop.sleep(seconds)


class _TopAdmin(Topics, LogDirs, ClusterRequests, ConsumerGroups, ShareGroups, GroupRequests):
    """Subset of the admin client for this command."""


class _Sampler:
    """Sampler of a cluster."""

    def __init__(self, cluster: AdminConnection[_TopAdmin], *, internal: bool) -> None:
        self._cluster = cluster
        self._internal = internal
        self._trouble: list[str] = []

    def sample(self) -> ClusterSample:
        """Return a sample. Raises KafkaError if the cluster does not answer; partial errors are stored in `trouble`."""
        ask, admin = self._cluster.ask, self._cluster.admin
        self._trouble = []
        described = ask(admin.describe_cluster())
        known = ask(admin.list_topics())
        every = {TopicPartition(info.name, n): leader for info in known.values() for n, leader in info.leaders.items()}
        leaders = {
            partition: leader
            for partition, leader in every.items()
            if self._internal or not known[partition.topic].internal
        }
        groups = ask(admin.list_groups())
        committed, lags = self._positions(groups)
        partitions = {
            partition for offsets in committed.values() for partition in offsets if every.get(partition, -1) >= 0
        }
        partitions |= {partition for partition, leader in leaders.items() if leader >= 0}
        ends_result = ask(admin.list_offsets(dict.fromkeys(sorted(partitions), LATEST), timeout=_TIMEOUT_S))
        self._add_errors(ends_result.errors)
        ends = {partition: end.offset for partition, end in ends_result.successes.items()}
        for group, offsets in committed.items():
            lags[group] = sum(
                max(ends[partition] - offset, 0) for partition, offset in offsets.items() if partition in ends
            )
        sizes = self._sizes([node.id for node in described.nodes])
        return ClusterSample(
            time.monotonic(), described, leaders, ends, sizes, groups, committed, lags, tuple(self._trouble)
        )

    def _positions(
        self, groups: dict[str, ListedGroup]
    ) -> tuple[dict[str, dict[TopicPartition, int]], dict[str, int | None]]:
        """Return the committed offsets of groups, and the lags of share groups."""
        ask, admin = self._cluster.ask, self._cluster.admin
        shared = [name for name, group in groups.items() if group.type == "share"]
        others = [name for name in groups if name not in shared]
        read = ask(admin.list_consumer_group_offsets(others, timeout=_TIMEOUT_S))
        self._add_errors(read.errors)
        committed = {
            name: {
                partition: committed_offset.offset
                for partition, committed_offset in offsets.items()
                if committed_offset.offset >= 0
            }
            for name, offsets in read.successes.items()
        }
        lags: dict[str, int | None] = {}
        if shared:
            share_result = ask(admin.list_share_group_offsets(shared, timeout=_TIMEOUT_S))
            self._add_errors(share_result.errors)
            for name, offsets in share_result.successes.items():
                known = [
                    committed_offset.lag for committed_offset in offsets.values() if committed_offset.lag is not None
                ]
                lags[name] = sum(known) if known else None
        return committed, lags

    def _sizes(self, nodes: list[int]) -> dict[int, dict[TopicPartition, int]]:
        """Return replica sizes by node, without brokers that do not report them (before Kafka 1.0)."""
        try:
            log_dirs = self._cluster.ask(self._cluster.admin.describe_log_dirs(nodes, timeout=_TIMEOUT_S))
        except UnsupportedVersion:
            return {}
        self._add_errors(
            {node: error for node, error in log_dirs.errors.items() if not isinstance(error, UnsupportedVersion)}
        )
        sizes: dict[int, dict[TopicPartition, int]] = {}
        for node, directories in log_dirs.successes.items():
            held = sizes.setdefault(node, {})
            for directory in directories.values():
                held.update(
                    {
                        partition: replica.size
                        for partition, replica in directory.replicas.items()
                        if not replica.is_future
                    }
                )
        return sizes

    def _add_errors(self, errors: dict[Any, KafkaError]) -> None:
        if errors:
            first, error = next(iter(errors.items()))
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            self._trouble.append(f"{first}{more}: {error}")
