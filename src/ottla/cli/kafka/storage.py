"""`ottla storage`: Kafka's kafka-storage, import of Apache Kafka's data directories, and backup."""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from ottla.broker.config import BrokerConfig, broker_config, read_file
from ottla.cli.cluster_access import CommandFailed
from ottla.cli.command_group import CommandGroup
from ottla.cli.kafka.features import (
    feature_dependencies,
    feature_option,
    level_of_release,
    levels_with,
    parse_levels,
    release_of,
    version_mapping,
)
from ottla.cli.kafka.scram_credentials import BadCredential, parse_credential
from ottla.cli.kafka.storage_migration import migrate_from, migrate_to
from ottla.cli.table import echo_json
from ottla.environment import private_files
from ottla.environment.system import SystemRandom
from ottla.log.backup import CannotCopy, copy_log_directory
from ottla.metadata.configs import InvalidConfig
from ottla.metadata.features import FEATURES, UnsupportedLevel, finalized, initial
from ottla.metadata.offline.adoption import DATABASE, Adoption, AlreadyAdopted, CannotAdopt, adopt
from ottla.metadata.offline.backup import CannotCopyMetadata, copy_database
from ottla.metadata.offline.formatting import CannotFormat, DirectoryReport, Formatted, format_directories, look_at
from ottla.metadata.store.sqlite_file import DamagedStore
from ottla.protocol.uuids import uuid_text
from ottla.security.scram import ScramCredential

F = TypeVar("F", bound=Callable[..., Any])
_METADATA: Final = "metadata.version"
_BACKUP_ATTEMPTS: Final = 3
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_.-]+")


@click.group(cls=CommandGroup)
def storage() -> None:
    """Data directories: format, inspect, import those of Apache Kafka, back up."""


storage.add_command(version_mapping)
storage.add_command(feature_dependencies)


def _directory_options(function: F) -> F:
    """Add [DIR]..., --config and -o, which select the data directories."""
    for option in reversed(
        (
            click.argument("directories", metavar="[DIR]...", nargs=-1),
            click.option(
                "--config", "-c", "file", metavar="FILE", help="A server.properties with Kafka's config names."
            ),
            click.option(
                "-o",
                "options",
                metavar="NAME=VALUE",
                multiple=True,
                help="One config by its Kafka name; may be repeated.",
            ),
        )
    ):
        function = option(function)
    return function


_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a random uuid, such as the id of a cluster."""
    random = SystemRandom()
    text = "-"
    while text.startswith("-"):  # a shell would take it for an option
        text = uuid_text(random.bytes16())
    click.echo(text)


@storage.command("info")
@_directory_options
@_json_option
def info(directories: tuple[str, ...], *, file: str | None, options: tuple[str, ...], as_json: bool) -> None:
    """Show the cluster and node of data directories, and problems that prevent a broker from starting.

    DIR is log.dirs; several directories are given one after another, or by --config or -o log.dirs=A,B. With a problem the
    exit code is 1.
    """
    config = _config_or_fail(directories, file, options)
    state = look_at(Path(config.metadata_log_dir), [Path(path) for path in config.log_dirs])
    if as_json:
        documents: dict[str, Any] = {"directories": [str(path) for path in state.directories]}
        echo_json({**documents, "metadata": _metadata(state), "problems": list(state.problems)})
    else:
        _echo_info(state)
    if state.problems:
        sys.exit(1)


def _metadata(state: DirectoryReport) -> dict[str, Any] | None:
    if state.identity is None:
        return None
    node_id, cluster_id, directory_id = state.identity
    return {"cluster.id": cluster_id, "directory.id": uuid_text(directory_id), "node.id": node_id, "version": 1}


def _echo_info(state: DirectoryReport) -> None:
    """Print in the format of Kafka's tool."""
    if state.directories:
        click.echo("Found log directory:" if len(state.directories) == 1 else "Found log directories:")
        for path in state.directories:
            click.echo(f"  {path}")
        click.echo()
    metadata = _metadata(state)
    if metadata is not None:
        click.echo(f"Found metadata: {{{', '.join(f'{name}={value}' for name, value in metadata.items())}}}")
        click.echo()
    if state.problems:
        click.echo("Found problem:" if len(state.problems) == 1 else "Found problems:")
        for problem in state.problems:
            click.echo(f"  {problem}")
        click.echo()


@storage.command("format")
@_directory_options
@click.option("--cluster-id", "-t", metavar="ID", required=True, help="The cluster's id: ottla storage random-uuid.")
@click.option(
    "--release-version",
    "-r",
    metavar="RELEASE",
    help="Set all features to their defaults of this release, e.g. 4.0-IV3.",
)
@feature_option
@click.option("--ignore-formatted", "-g", is_flag=True, help="Skip directories that are formatted already.")
@click.option(
    "--standalone", "-s", is_flag=True, help="Accepted for compatibility; a single broker is its own controller."
)
@click.option(
    "--no-initial-controllers", "-N", is_flag=True, help="Accepted for compatibility; there are no initial controllers."
)
@click.option("--initial-controllers", "-I", metavar="LIST", hidden=True)
@click.option(
    "--add-scram",
    "-S",
    metavar="CREDENTIAL",
    multiple=True,
    help="Create a user: 'SCRAM-SHA-256=[name=alice,password=SECRET]'; may be repeated.",
)
@_json_option
def format_(**options: Any) -> None:
    """Format new data directories for a cluster with this id: `ottla serve` then starts on them.

    DIR is log.dirs; several directories are given one after another, or by --config or -o log.dirs=A,B.
    """
    _reject_quorum_options(options)
    cluster_id = options["cluster_id"]
    if not _CLUSTER_ID.fullmatch(cluster_id):
        raise CommandFailed(f"cluster id {cluster_id!r} is invalid: use letters, digits, _, - and .")
    config = _config_or_fail(options["directories"], options["file"], options["options"])
    features = _features(options["release_version"], options["named"])
    credentials = _credentials(options["add_scram"])
    home, log_dirs = Path(config.metadata_log_dir), [Path(path) for path in config.log_dirs]
    owner = config.node_id, cluster_id
    try:
        done = format_directories(
            home, log_dirs, owner, features, SystemRandom(), credentials, ignore_formatted=options["ignore_formatted"]
        )
    except CannotFormat as error:
        raise CommandFailed(str(error)) from None
    levels = dict(finalized(features or initial()))
    if options["as_json"]:
        document = {name: list(map(str, paths)) for name, paths in zip(_DONE, done, strict=True)}
        stored = levels if home in done.new else None
        echo_json({"cluster_id": cluster_id, "node_id": config.node_id, **document, "features": stored})
    else:
        _echo_formatted(done, home, release_of(levels[_METADATA]))


def _credentials(texts: Sequence[str]) -> dict[tuple[str, int], ScramCredential]:
    """Return SCRAM credentials by user and mechanism. Raises CommandFailed."""
    random = SystemRandom()
    try:
        return {(user, mechanism): made for user, mechanism, made in (parse_credential(text, random) for text in texts)}
    except BadCredential as error:
        raise CommandFailed(str(error)) from None


_DONE: Final = ("formatted", "already_formatted", "unreadable")


def _reject_quorum_options(options: dict[str, Any]) -> None:
    if options["initial_controllers"] is not None:
        raise CommandFailed(
            "--initial-controllers is for several controllers; Ottla is one node and its own controller"
        )
    if options["standalone"] and options["no_initial_controllers"]:
        raise click.UsageError("--no-initial-controllers cannot be combined with --standalone")


def _features(release: str | None, named: tuple[str, ...]) -> dict[str, int]:
    """Return the feature levels to store, empty if no option sets them. Raises CommandFailed."""
    chosen = parse_levels(named)
    if release is None and not chosen:
        return {}
    if release is not None and _METADATA in chosen:
        raise CommandFailed("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
    known = {feature.name: feature.level for feature in FEATURES}
    level = level_of_release(release) if release is not None else chosen.get(_METADATA, known[_METADATA])
    # kraft.version applies to dynamic quorums, which Ottla does not have.
    brought = {name: level for name, level in levels_with(level) if name in known and name != "kraft.version"}
    try:
        return initial(brought | chosen)
    except UnsupportedLevel as error:
        raise CommandFailed(str(error)) from None


def _echo_formatted(done: Formatted, home: Path, release: str) -> None:
    """Print in the format of Kafka's tool."""
    for path in done.unreadable:
        click.echo(f"I/O error trying to read log directory {path}. Ignoring...")
    for path in done.new:
        click.echo(f"Formatting {'metadata' if path == home else 'data'} directory {path} with {_METADATA} {release}.")
    if not done.new:
        click.echo("All of the log directories are already formatted.")


def _config_or_fail(directories: Sequence[str], file: str | None, options: Sequence[str]) -> BrokerConfig:
    try:
        return _config(directories, file, options)[0]
    except InvalidConfig as error:
        raise CommandFailed(str(error)) from None


@storage.command("import")
@_directory_options
@click.option("--dry-run", is_flag=True, help="Show what would be imported without changing anything.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def import_(
    directories: tuple[str, ...], *, file: str | None, options: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Adopt the data directory of a stopped Apache Kafka (KRaft, one broker): `ottla serve` then continues from its state.

    DIR is log.dirs; several directories are given one after another, or by --config or -o log.dirs=A,B. Topics with their
    ids, partitions, epochs and configs, the other configs, features, quotas, SCRAM credentials and the next producer id are
    read from the metadata log and written to metadata.db. Partitions are not touched.
    """
    try:
        config, node_id = _config(directories, file, options)
        home, log_dirs = Path(config.metadata_log_dir), [Path(path) for path in config.log_dirs]
        adoption = adopt(home, log_dirs, config, SystemRandom(), node_id=node_id, dry_run=dry_run)
    except AlreadyAdopted as reason:
        click.echo(json.dumps({"imported": False, "reason": str(reason)}) if as_json else str(reason))
        return
    except (InvalidConfig, CannotAdopt, DamagedStore) as error:
        click.echo(f"ottla: {error}", err=True)
        sys.exit(1)
    command = _serve_command(config, adoption.identity.node_id, file, options)
    if as_json:
        click.echo(json.dumps(_description_of(adoption, command, dry_run=dry_run), indent=2))
        return
    for line in _table(adoption):
        click.echo(line)
    click.echo()
    click.echo(f"{'would be imported' if dry_run else 'imported'}; serve with: {command}")


@storage.command("migrate")
@_directory_options
@click.option("--to", "target", metavar="etcd://HOST:PORT,.../PREFIX", help="Move metadata.db into this etcd.")
@click.option("--from", "source", metavar="etcd://HOST:PORT,.../PREFIX", help="Move the metadata in this etcd back.")
@_json_option
def migrate(
    directories: tuple[str, ...],
    *,
    file: str | None,
    options: tuple[str, ...],
    target: str | None,
    source: str | None,
    as_json: bool,
) -> None:
    """Move the metadata of a stopped broker into etcd, to make it the first of a cluster, or back to a single broker.

    DIR is log.dirs; the data directories stay as they are.
    """
    if (target is None) == (source is None):
        raise click.UsageError("give either --to or --from")
    config = _config_or_fail(directories, file, options)
    url = target or source or ""
    count = migrate_to(url, config) if target is not None else migrate_from(url, config)
    serve = ["ottla", "serve", "--data-dir", ",".join(config.log_dirs), "-o", f"node.id={config.node_id}"]
    command = shlex.join([*serve, "--cluster", url] if target is not None else serve)
    if as_json:
        echo_json({"keys": count, "serve": command})
    else:
        click.echo(f"moved {count} keys; serve with: {command}")


@storage.command("backup")
@_directory_options
@click.option("--to", "target", metavar="DIR", required=True, help="A directory that does not exist yet, or is empty.")
@_json_option
def backup(
    directories: tuple[str, ...], *, file: str | None, options: tuple[str, ...], target: str, as_json: bool
) -> None:
    """Copy data directories, also of a running broker: `ottla serve --data-dir` starts on the copy.

    DIR is log.dirs. Several directories are copied into directories of the same names below the target. Each partition is
    copied at a different time, as after a crash: for consistent transactions over several partitions stop the broker.
    """
    config = _config_or_fail(directories, file, options)
    home = Path(config.metadata_log_dir)
    try:
        copies = _targets([home, *map(Path, config.log_dirs)], Path(target))
        partitions, size = _copy(home, copies)
    except (CannotCopy, CannotCopyMetadata) as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"cannot copy {error.filename or home}: {error.strerror or error}") from None
    serve = shlex.join(["ottla", "serve", "--data-dir", ",".join(str(copies[Path(path)]) for path in config.log_dirs)])
    if as_json:
        echo_json({"partitions": partitions, "bytes": size, "serve": serve})
    else:
        click.echo(f"copied {partitions} partitions, {size:,} bytes; serve the copy with: {serve}")


def _targets(sources: Sequence[Path], target: Path) -> dict[Path, Path]:
    """Return the target directory by source. Raises CommandFailed."""
    different = list(dict.fromkeys(sources))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CommandFailed(f"{target} is not empty: name a directory that does not exist yet")
    if len(different) == 1:
        return {different[0]: target}
    copies = {source: target / source.name for source in different}
    if len(set(copies.values())) < len(copies):
        raise CommandFailed("two directories have the same name: copy them one by one")
    return copies


def _copy(home: Path, copies: Mapping[Path, Path]) -> tuple[int, int]:
    """Copy metadata and partitions, and retry if the metadata changed meanwhile; return partitions and bytes."""
    if not (home / DATABASE).exists():
        raise CommandFailed(f"{home} has no {DATABASE}: it is not the data directory of Ottla")
    size = 0

    def progress(name: str, count: int) -> None:
        nonlocal size
        size += count
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{name}: {size:,} bytes", nl=False, err=True)

    for _ in range(_BACKUP_ATTEMPTS):
        size = 0
        private_files.make_directory(copies[home])
        revision = copy_database(home / DATABASE, copies[home] / DATABASE)
        partitions = sum(copy_log_directory(source, copies[source], progress) for source in copies)
        again = copies[home] / f"{DATABASE}.again"
        unchanged = copy_database(home / DATABASE, again) == revision
        again.unlink()
        if unchanged:
            break
    else:
        raise CommandFailed(
            f"topics, configs or producer ids have changed during each of {_BACKUP_ATTEMPTS} copies: the last one is not "
            "consistent; try again when fewer changes are made"
        )
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    return partitions, size


def _config(directories: Sequence[str], file: str | None, options: Sequence[str]) -> tuple[BrokerConfig, int | None]:
    """Return the broker config, and the node id if it is set. Raises InvalidConfig."""
    file_configs = read_file(Path(file)) if file else {}
    flags = list(options)
    if directories:
        flags.append(f"log.dirs={','.join(directories)}")
    config = broker_config(file_configs, os.environ, flags)
    named = {"log.dirs", "log.dir"} & set(config.static)
    if not named:
        command = click.get_current_context().info_name
        raise click.UsageError(f"name the directory: ottla storage {command} DIR")
    return config, config.node_id if {"node.id", "broker.id"} & set(config.static) else None


def _serve_command(config: BrokerConfig, node_id: int, file: str | None, options: Sequence[str]) -> str:
    words = ["ottla", "serve"]
    words += ["--config", file] if file else []
    words += ["--data-dir", ",".join(config.log_dirs)]
    if config.node_id != node_id:
        words += ["-o", f"node.id={node_id}"]
    for option in options:
        words += [] if option.startswith(("log.dirs=", "log.dir=")) else ["-o", option]
    return shlex.join(words)


def _table(adoption: Adoption) -> list[str]:
    """Return a table of topics, then a line for each other kind of metadata."""
    rows = [("TOPIC", "PARTITIONS", "ID", "CONFIGS")]
    for topic in adoption.topics:
        configs = ", ".join(f"{name}={text}" for name, text in topic.configs.items())
        rows.append((topic.name, str(len(topic.partitions)), uuid_text(topic.id), configs or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{name:{widths[0]}}  {count:>{widths[1]}}  {topic_id:{widths[2]}}  {configs}"
        for name, count, topic_id, configs in rows
    ]
    metadata = adoption.metadata
    lines.append("")
    for (kind, name), texts in adoption.configs.items():
        settings = ", ".join(f"{config}={text}" for config, text in texts.items())
        lines.append(f"configs of {_RESOURCES[kind]} {name or '(all)'}: {settings}")
    for entity, quotas in sorted(metadata.quotas.items(), key=str):
        whom = ", ".join(f"{kind} {name if name is not None else '(default)'}" for kind, name in entity)
        lines.append(f"quotas of {whom}: {', '.join(f'{name}={value:g}' for name, value in quotas.items())}")
    if metadata.scram:
        lines.append(f"SCRAM credentials of: {', '.join(sorted({user for user, _ in metadata.scram}))}")
    features = ", ".join(f"{name} {level}" for name, level in sorted(metadata.features.items()))
    lines.append(f"features: {features}")
    lines.append(f"next producer id: {adoption.next_producer_id}")
    lines += [f"not taken: {sentence}" for sentence in adoption.left_out]
    return lines


_RESOURCES = {4: "broker", 16: "client-metrics", 32: "group"}


def _description_of(adoption: Adoption, command: str, *, dry_run: bool) -> dict[str, Any]:
    metadata = adoption.metadata
    return {
        "imported": not dry_run,
        "node_id": adoption.identity.node_id,
        "cluster_id": adoption.identity.cluster_id,
        "topics": [
            {
                "name": topic.name,
                "id": uuid_text(topic.id),
                "leader_epochs": [partition.leader_epoch for partition in topic.partitions],
                "configs": dict(topic.configs),
            }
            for topic in adoption.topics
        ],
        "configs": [
            {"resource": _RESOURCES[kind], "name": name, "configs": texts}
            for (kind, name), texts in adoption.configs.items()
        ],
        "quotas": [
            {"entity": dict(entity), "quotas": quotas} for entity, quotas in sorted(metadata.quotas.items(), key=str)
        ],
        "scram_users": sorted({user for user, _ in metadata.scram}),
        "features": metadata.features,
        "next_producer_id": adoption.next_producer_id,
        "metadata_offset": metadata.offset,
        "not_taken": list(adoption.left_out),
        "serve": command,
    }
