"""`ottla storage`: what is done with data directories while no broker runs on them."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ottla.broker.config import BrokerConfig, broker_config, read_file
from ottla.environment import SystemRandom
from ottla.metadata.adoption import Adoption, AlreadyAdopted, CannotAdopt, adopt
from ottla.metadata.configs import InvalidConfig
from ottla.metadata.store.sqlite import DamagedStore
from ottla.protocol.uuids import uuid_text


@click.group()
def storage() -> None:
    """Data directories of stopped brokers."""


@storage.command("import")
@click.argument("directories", metavar="[DIR]...", nargs=-1)
@click.option("--config", "file", metavar="FILE", help="The server.properties of that Apache Kafka.")
@click.option(
    "-o", "options", metavar="NAME=VALUE", multiple=True, help="One config by its Kafka name; may be repeated."
)
@click.option("--dry-run", is_flag=True, help="Say what would be imported, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def import_(
    directories: tuple[str, ...], *, file: str | None, options: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Adopt the data directory of a stopped Apache Kafka (KRaft, one broker): `ottla serve` then goes on where it stopped.

    DIR is log.dirs; several directories are given one after another, or by --config or -o log.dirs=A,B. Topics with their
    ids, partitions, epochs and configs, the other configs, features, quotas, SCRAM credentials and the next producer id are
    read from the metadata log and written to metadata.db. Partitions are not touched.
    """
    try:
        config, node_id = _config(directories, file, options)
        home, log_dirs = Path(config.metadata_log_dir), [Path(path) for path in config.log_dirs]
        adoption = adopt(home, log_dirs, config, SystemRandom(), node_id=node_id, dry_run=dry_run)
    except AlreadyAdopted as said:
        click.echo(json.dumps({"imported": False, "reason": str(said)}) if as_json else str(said))
        return
    except (InvalidConfig, CannotAdopt, DamagedStore) as error:
        click.echo(f"ottla: {error}", err=True)
        sys.exit(1)
    command = _serve_command(config, adoption.identity.node_id, file, options)
    if as_json:
        click.echo(json.dumps(_described(adoption, command, dry_run=dry_run), indent=2))
        return
    for line in _table(adoption):
        click.echo(line)
    click.echo()
    click.echo(f"{'would be imported' if dry_run else 'imported'}; serve with: {command}")


def _config(directories: Sequence[str], file: str | None, options: Sequence[str]) -> tuple[BrokerConfig, int | None]:
    """The configs that Ottla will run with, and the node id if one is named. Raises InvalidConfig."""
    given = read_file(Path(file)) if file else {}
    flags = list(options)
    if directories:
        flags.append(f"log.dirs={','.join(directories)}")
    config = broker_config(given, os.environ, flags)
    named = {"log.dirs", "log.dir"} & set(config.static)
    if not named:
        raise click.UsageError("name the directory: ottla storage import DIR")
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
    """A table of topics, then one line for each other kind of thing."""
    rows = [("TOPIC", "PARTITIONS", "ID", "CONFIGS")]
    for topic in adoption.topics:
        configs = ", ".join(f"{name}={text}" for name, text in topic.configs.items())
        rows.append((topic.name, str(len(topic.partitions)), uuid_text(topic.id), configs or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{name:{widths[0]}}  {count:>{widths[1]}}  {topic_id:{widths[2]}}  {configs}"
        for name, count, topic_id, configs in rows
    ]
    found = adoption.metadata
    lines.append("")
    for (kind, name), texts in adoption.configs.items():
        said = ", ".join(f"{config}={text}" for config, text in texts.items())
        lines.append(f"configs of {_RESOURCES[kind]} {name or '(all)'}: {said}")
    for entity, quotas in sorted(found.quotas.items(), key=str):
        whom = ", ".join(f"{kind} {name if name is not None else '(default)'}" for kind, name in entity)
        lines.append(f"quotas of {whom}: {', '.join(f'{name}={value:g}' for name, value in quotas.items())}")
    if found.scram:
        lines.append(f"SCRAM credentials of: {', '.join(sorted({user for user, _ in found.scram}))}")
    features = ", ".join(f"{name} {level}" for name, level in sorted(found.features.items()))
    lines.append(f"features: {features}")
    lines.append(f"next producer id: {adoption.next_producer_id}")
    lines += [f"not taken: {sentence}" for sentence in adoption.left_out]
    return lines


_RESOURCES = {4: "broker", 16: "client-metrics", 32: "group"}


def _described(adoption: Adoption, command: str, *, dry_run: bool) -> dict[str, Any]:
    found = adoption.metadata
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
            {"entity": dict(entity), "quotas": quotas} for entity, quotas in sorted(found.quotas.items(), key=str)
        ],
        "scram_users": sorted({user for user, _ in found.scram}),
        "features": found.features,
        "next_producer_id": adoption.next_producer_id,
        "metadata_offset": found.offset,
        "not_taken": list(adoption.left_out),
        "serve": command,
    }
