"""One broker: its role, log directories and configs."""

from typing import NamedTuple

from starlette.responses import Response

from ottla.client.admin.configs import ConfigEntry, ConfigResource, ConfigSource, ResourceType
from ottla.client.admin.log_dirs import LogDir
from ottla.client.errors import KafkaError
from ottla.console.clusters import TIMEOUT_S
from ottla.console.pages.overview import broker_rows
from ottla.console.problem import Problem
from ottla.console.visit import Visit, integer, page


class ConfigRow(NamedTuple):
    """Config of a broker; `default` is the value of Kafka where none is set."""

    entry: ConfigEntry
    default: str | None


async def broker(visit: Visit) -> Response:
    """Show a broker."""
    node_id = integer(visit.path("broker"), "Broker", 0)
    rows = {row.id: row for row in await broker_rows(visit, await visit.cluster.description())}
    if node_id not in rows:
        known = ", ".join(map(str, rows))
        raise Problem(f"The cluster has no broker {node_id}; it has: {known}.", 404)
    directories, errors = await _directories(visit, node_id)
    configs: list[ConfigRow] = []
    try:
        configs = await _configs(visit, node_id)
    except KafkaError as error:
        errors.append(f"The configs cannot be shown: {error}")
    return visit.render(
        "broker.html",
        title=f"Broker {node_id}",
        broker=rows[node_id],
        directories=directories,
        own=[row for row in configs if row.entry.source != ConfigSource.DEFAULT_CONFIG],
        others=[row for row in configs if row.entry.source == ConfigSource.DEFAULT_CONFIG],
        errors=errors,
    )


async def _configs(visit: Visit, node_id: int) -> list[ConfigRow]:
    """Return the configs of a broker, sorted by name. Raises KafkaError."""
    resource = ConfigResource(ResourceType.BROKER, str(node_id))
    described = await visit.admin.describe_configs(
        [resource], include_synonyms=True, include_documentation=True, timeout=TIMEOUT_S
    )
    return [ConfigRow(entry, _default(entry)) for _, entry in sorted(described[resource].items())]


def _default(entry: ConfigEntry) -> str | None:
    return next((row.value for row in entry.synonyms if row.source == ConfigSource.DEFAULT_CONFIG), None)


async def _directories(visit: Visit, node_id: int) -> tuple[dict[str, LogDir], list[str]]:
    """Return the log directories of a broker by path, and why they are not known."""
    try:
        described = await visit.admin.describe_log_dirs([node_id], timeout=TIMEOUT_S)
        return dict(sorted(described[node_id].items())), []
    except KafkaError as error:
        return {}, [f"The log directories cannot be shown: {error}"]


ROUTES = [page("/brokers/{broker}", broker)]
