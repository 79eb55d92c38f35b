"""Quotas and SCRAM credentials for `ottla configs`: configs of users, clients and ips."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from ottla.cli.cluster_access import AdminConnection, CommandFailed
from ottla.cli.table import echo_json
from ottla.client.admin.quotas import ClientQuotaEntity, QuotaFilter, Quotas
from ottla.client.admin.scram import (
    Scram,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

_KINDS: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
_LABELS: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_OF_CLIENTS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
_OF_ADDRESSES: Final = ("connection_creation_rate",)
_MECHANISMS: Final = {mechanism.name.replace("_", "-"): mechanism for mechanism in ScramMechanism}
_ITERATIONS: Final = 4096


class ConfigEntity(NamedTuple):
    """Entity with configs or quotas, by type (an --entity-type); the name is None for all of the type, "" for the default."""

    type: str
    name: str | None


class QuotaAdmin(Quotas, Scram):
    """Subset of the admin client for quotas and credentials."""


def describe_quotas(cluster: AdminConnection[QuotaAdmin], entities: Sequence[ConfigEntity], *, as_json: bool) -> None:
    """Print the quotas of entities, and the SCRAM credentials of users."""
    filters = [QuotaFilter(_KINDS[entity.type], entity.name or None, any=entity.name is None) for entity in entities]
    quotas = cluster.ask(cluster.admin.describe_client_quotas(filters, strict=True))
    credentials = _credentials(cluster, entities)
    if as_json:
        echo_json(
            {
                "quotas": [{"entity": dict(entity), "quotas": quotas[entity]} for entity in sorted(quotas, key=_name)],
                "scram": [{"user": user, "credentials": its} for user, its in credentials.items()],
            }
        )
        return
    for entity in sorted(quotas, key=_name):
        listed = ", ".join(f"{key}={java_double(value)}" for key, value in sorted(quotas[entity].items()))
        click.echo(f"Quota configs for {_name(entity)} are {listed}")
    for user, its in credentials.items():
        listed = ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in its.items())
        click.echo(f"SCRAM credential configs for user-principal '{user}' are {listed}")


def _credentials(cluster: AdminConnection[QuotaAdmin], entities: Sequence[ConfigEntity]) -> dict[str, dict[str, int]]:
    """Return iterations by user and mechanism; empty unless the entity is a single user or all users."""
    (first, *others) = entities
    if others or first.type != "users" or first.name == "":
        return {}
    users = None if first.name is None else [first.name]
    results = cluster.ask(cluster.admin.describe_user_scram_credentials(users))
    for error in results.errors.values():
        if error.name != "RESOURCE_NOT_FOUND":
            raise error
    return {
        user: {info.mechanism.name.replace("_", "-"): info.iterations for info in infos}
        for user, infos in sorted(results.successes.items())
    }


def _name(entity: ClientQuotaEntity) -> str:
    """Describe the entity of a quota as Kafka's tool does."""
    parts = dict(entity)
    return ", ".join(
        f"the default {label}" if parts[kind] is None else f"{label} '{parts[kind]}'"
        for kind, label in _LABELS.items()
        if kind in parts
    )


def java_double(value: float) -> str:
    """Format a number as Java prints a double: 5.0, 1.0E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    mantissa, _, exponent = f"{value:.16E}".partition("E")
    shortest = next(
        (text for digits in range(1, 17) if float(text := f"{value:.{digits}E}") == value), f"{mantissa}E{exponent}"
    )
    mantissa, _, exponent = shortest.partition("E")
    return f"{mantissa}E{int(exponent)}"


def alter_quotas(
    cluster: AdminConnection[QuotaAdmin],
    entities: Sequence[ConfigEntity],
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> None:
    """Set and delete either quotas or credentials. Raises CommandFailed, UsageError."""
    named = [*added, *deleted]
    scram = [name for name in named if name in _MECHANISMS]
    known = _OF_ADDRESSES if entities[0].type == "ips" else _OF_CLIENTS
    unknown = [name for name in named if name not in known and name not in scram]
    alone = len(entities) == 1 and entities[0].type == "users"
    if unknown or (scram and not alone):
        odd = ", ".join(unknown or scram)
        raise CommandFailed(
            f"{odd}: {entities[0].type} have {', '.join(known)}{', SCRAM credentials' if alone else ''}"
        )
    if scram and len(scram) < len(named):
        raise CommandFailed("quotas and SCRAM credentials cannot be changed together")
    if scram:
        _alter_credentials(cluster, entities[0].name or "", added, deleted)
        return
    values: dict[str, float | None] = dict.fromkeys(deleted)
    for name, text in added.items():
        try:
            values[name] = float(text)
        except ValueError:
            raise click.UsageError(f"{name}={text}: a quota must be a number") from None
    entity = frozenset((_KINDS[part.type], part.name or None) for part in entities)
    filters = [QuotaFilter(*component) for component in entity]
    current = cluster.ask(cluster.admin.describe_client_quotas(filters, strict=True)).get(entity, {}) if deleted else {}
    missing = [name for name in deleted if name not in current]
    if missing:
        raise CommandFailed(f"{', '.join(missing)}: {_name(entity)} has no such quota to delete")
    cluster.ask(cluster.admin.alter_client_quotas({entity: values})).check()


def _alter_credentials(
    cluster: AdminConnection[QuotaAdmin], user: str, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    if not user:
        raise CommandFailed("the default user cannot have SCRAM credentials: name a user")
    alterations: list[Any] = [UserScramCredentialDeletion(user, _MECHANISMS[name]) for name in deleted]
    for name, text in added.items():
        matched = re.fullmatch(r"(?:iterations=(-?\d+),)?password=(.*)", text)
        if matched is None or not matched[2]:
            raise click.UsageError(f"{name}: credentials must be [iterations={_ITERATIONS},password=SECRET]")
        iterations = int(matched[1] or _ITERATIONS)
        alterations.append(UserScramCredentialUpsertion(user, _MECHANISMS[name], matched[2], iterations))
    cluster.ask(cluster.admin.alter_user_scram_credentials(alterations)).check()
