"""`ottla features`: Kafka's kafka-features: feature levels of a cluster."""

from collections.abc import Iterable
from typing import Any, Final

import click

from ottla.cli.cluster_access import CommandFailed, cluster_options, connect, json_option
from ottla.cli.command_group import CommandGroup
from ottla.cli.properties import warn_if_deprecated
from ottla.cli.table import echo_json
from ottla.client.admin.cluster import ClusterRequests, FeatureUpdate, UpgradeType

_METADATA: Final = "metadata.version"
_RELEASES: Final = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0"),
    *("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1"),
    *("4.3-IV0", "4.4-IV0", "4.4-IV1", "4.4-IV2"),
)
"""Names of the levels of metadata.version, from 7 on."""
_FIRST: Final = 7
_LEVELS_BY_RELEASE: Final = (
    ("kraft.version", {21: 1}),
    ("transaction.version", {24: 2}),
    ("group.version", {22: 1}),
    ("eligible.leader.replicas.version", {26: 1}),
    ("share.version", {28: 1, 31: 2}),
    ("streams.version", {29: 1}),
)
"""Levels of each feature, by the first level of metadata.version that includes it."""
_NEEDS: Final = {("eligible.leader.replicas.version", 1): (_METADATA, 23)}


def release_of(level: int) -> str:
    """Return the name of a level of metadata.version."""
    index = level - _FIRST
    return _RELEASES[index] if 0 <= index < len(_RELEASES) else f"UNKNOWN {level}"


def level_of_release(text: str) -> int:
    """Parse a release: "4.0-IV3", or "4.0" for its last level. Raises UsageError."""
    named = [index for index, name in enumerate(_RELEASES) if name == text or name.startswith(f"{text}-")]
    if named:
        return _FIRST + named[-1]
    raise click.UsageError(f"unknown release {text}; known are {_RELEASES[0]} to {_RELEASES[-1]}")


def _level_text(feature: str, level: int) -> str:
    return release_of(level) if feature == _METADATA else str(level)


@click.group("features", cls=CommandGroup)
@cluster_options
@click.pass_context
def features(ctx: click.Context, bootstrap_server: str | None, command_config: str | None) -> None:
    """Show and change the features of a cluster."""
    ctx.obj = (bootstrap_server, command_config)


def _where(ctx: click.Context) -> tuple[str | None, str | None]:
    server, file = ctx.obj
    return server, file


@features.command("describe")
@click.option("--node-id", type=int, metavar="N", help="Broker to query; any if omitted.")
@json_option
@click.pass_context
def describe(ctx: click.Context, node_id: int | None, *, as_json: bool) -> None:
    """Show supported and finalized feature levels."""
    with connect(ClusterRequests, *_where(ctx)) as cluster:
        described = cluster.ask(cluster.admin.describe_features(node_id))
    rows = []
    for name, supported in sorted(described.supported.items()):
        level = described.finalized[name].max_version if name in described.finalized else 0
        rows.append((name, supported.min_version, supported.max_version, level))
    if as_json:
        names = ("feature", "supported_min_version", "supported_max_version", "finalized_version_level")
        echo_json(
            {"epoch": described.finalized_epoch, "features": [dict(zip(names, row, strict=True)) for row in rows]}
        )
        return
    for name, low, high, level in rows:
        click.echo(
            f"Feature: {name}\tSupportedMinVersion: {_level_text(name, low)}\tSupportedMaxVersion: {_level_text(name, high)}\t"
            f"FinalizedVersionLevel: {_level_text(name, level)}\tEpoch: {_epoch(described.finalized_epoch)}"
        )


def _epoch(epoch: int | None) -> str:
    return "-" if epoch is None else str(epoch)


feature_option = click.option(
    "--feature", "-f", "named", metavar="NAME=LEVEL", multiple=True, help="A feature; may be repeated."
)
_release_option = click.option(
    "--release-version", metavar="RELEASE", help="Set all features to their defaults of this release, e.g. 4.0-IV3."
)
_metadata_option = click.option("--metadata", metavar="RELEASE", help="Old way to name metadata.version.")
_dry_run_option = click.option("--dry-run", is_flag=True, help="Validate only.")
_unsafe_option = click.option("--unsafe", is_flag=True, help="Continue although metadata may be lost.")


def parse_levels(named: Iterable[str]) -> dict[str, int]:
    """Parse options like "group.version=1" into levels by feature. Raises UsageError."""
    levels = {}
    for text in named:
        name, equals, level = text.partition("=")
        if not equals or not name or not level.strip().isdecimal():
            raise click.UsageError(f"--feature {text}: a feature must be NAME=LEVEL")
        if name in levels:
            raise click.UsageError(f"--feature {name} is specified twice")
        levels[name] = int(level)
    return levels


def _requested_levels(named: Iterable[str], release: str | None, metadata: str | None) -> dict[str, int]:
    warn_if_deprecated("--metadata", "--release-version")
    levels = parse_levels(named)
    if release is not None:
        if levels or metadata is not None:
            raise click.UsageError("--release-version cannot be combined with --feature or --metadata")
        return dict(levels_with(level_of_release(release)))
    if metadata is not None:
        levels[_METADATA] = level_of_release(metadata)
    if not levels:
        raise click.UsageError("specify at least one --feature, or --release-version")
    return levels


@features.command("upgrade")
@feature_option
@_release_option
@_metadata_option
@_dry_run_option
@json_option
@click.pass_context
def upgrade(ctx: click.Context, /, **options: Any) -> None:
    """Upgrade features to higher levels."""
    for name, level in parse_levels(options["named"]).items():
        if level == 0:
            raise click.UsageError(f"--feature {name}=0: level 0 disables a feature: use downgrade or disable")
    levels = _requested_levels(options["named"], options["release_version"], options["metadata"])
    _update(ctx, levels, UpgradeType.UPGRADE, "upgrade", options)


@features.command("downgrade")
@feature_option
@_release_option
@_metadata_option
@_unsafe_option
@_dry_run_option
@json_option
@click.pass_context
def downgrade(ctx: click.Context, /, **options: Any) -> None:
    """Downgrade features to lower levels."""
    levels = _requested_levels(options["named"], options["release_version"], options["metadata"])
    _update(ctx, levels, _downgrade(options), "downgrade", options)


@features.command("disable")
@click.option("--feature", "named", metavar="NAME", multiple=True, required=True, help="A feature; may be repeated.")
@_unsafe_option
@_dry_run_option
@json_option
@click.pass_context
def disable(ctx: click.Context, /, **options: Any) -> None:
    """Disable features: set their level to 0."""
    if len(set(options["named"])) != len(options["named"]):
        raise click.UsageError("--feature: a feature is specified twice")
    _update(ctx, dict.fromkeys(options["named"], 0), _downgrade(options), "disable", options)


def _downgrade(options: dict[str, Any]) -> UpgradeType:
    return UpgradeType.UNSAFE_DOWNGRADE if options["unsafe"] else UpgradeType.SAFE_DOWNGRADE


def _update(ctx: click.Context, levels: dict[str, int], kind: UpgradeType, verb: str, options: dict[str, Any]) -> None:
    updates = {name: FeatureUpdate(level, kind) for name, level in levels.items()}
    with connect(ClusterRequests, *_where(ctx), changes=not options["dry_run"]) as cluster:
        results = cluster.ask(cluster.admin.update_features(updates, validate_only=options["dry_run"]))
    done = verb if verb.endswith("d") else f"{verb}d"
    documents = []
    for name, level in sorted(levels.items()):
        to = "" if verb == "disable" else f" to {level}"
        error = results.errors.get(name)
        documents.append({"feature": name, "level": level, "error": None if error is None else str(error)})
        if options["as_json"]:
            continue
        if error is not None:
            click.echo(f"{'Can not' if options['dry_run'] else 'Could not'} {verb} {name}{to}. {error}")
        else:
            click.echo(f"{name} {'can be' if options['dry_run'] else 'was'} {done}{to}.")
    if options["as_json"]:
        echo_json(documents)
    if results.errors:
        raise CommandFailed(f"{len(results.errors)} out of {len(levels)} operation(s) failed.")


def levels_with(level: int) -> list[tuple[str, int]]:
    """Return the level of each feature in a cluster with this level of metadata.version."""
    levels = [(_METADATA, level)]
    for name, steps in _LEVELS_BY_RELEASE:
        levels.append((name, max((to for first, to in steps.items() if first <= level), default=0)))
    return levels


@features.command("version-mapping")
@click.option(
    "--release-version", "-r", metavar="RELEASE", default=_RELEASES[-1], show_default=True, help="The release."
)
@json_option
def version_mapping(release_version: str, *, as_json: bool) -> None:
    """Show the feature levels of a release."""
    mapping = levels_with(level_of_release(release_version))
    if as_json:
        echo_json(dict(mapping))
        return
    for name, level in mapping:
        click.echo(f"{name}={level} ({release_version})" if name == _METADATA else f"{name}={level}")


@features.command("feature-dependencies")
@feature_option
@json_option
def feature_dependencies(named: tuple[str, ...], *, as_json: bool) -> None:
    """Show the dependencies of features."""
    levels = parse_levels(named)
    if not levels:
        raise click.UsageError("at least one --feature")
    known = {_METADATA: _FIRST + len(_RELEASES) - 1} | {name: max(steps.values()) for name, steps in _LEVELS_BY_RELEASE}
    documents = []
    for name, level in levels.items():
        if name not in known:
            raise CommandFailed(f"Unknown feature: {name}")
        if level > known[name] or (name == _METADATA and level < _FIRST):
            raise CommandFailed(f"Feature level {level} is not defined for {name}")
        needs = _NEEDS.get((name, level))
        documents.append({"feature": name, "level": level, "needs": dict([needs]) if needs else {}})
        if as_json:
            continue
        shown = f"{name}={level} ({release_of(level)})" if name == _METADATA else f"{name}={level}"
        if needs is None:
            click.echo(f"{shown} has no dependencies.")
        else:
            click.echo(f"{shown} requires:\n    {needs[0]}={needs[1]} ({release_of(needs[1])})")
    if as_json:
        echo_json(documents)
