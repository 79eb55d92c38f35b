"""`ottla broker-api-versions`, and `ottla cluster api-versions`: API versions served by each broker."""

import click

from ottla.addresses import address_text
from ottla.cli.cluster_access import CommandFailed, cluster_options, connect, json_option
from ottla.cli.table import echo_json
from ottla.client.admin.cluster import ClusterRequests, Node
from ottla.protocol.api import APIS, Api
from ottla.protocol.schema import VersionRange


@click.command("broker-api-versions")
@cluster_options
@json_option
def broker_api_versions(bootstrap_server: str | None, command_config: str | None, *, as_json: bool) -> None:
    """Show the API versions that each broker supports, and the version that this client would use."""
    with connect(ClusterRequests, bootstrap_server, command_config) as cluster:
        nodes = cluster.ask(cluster.admin.describe_cluster()).nodes
        results = cluster.ask(cluster.admin.api_versions([node.id for node in nodes]))
    if as_json:
        echo_json([{**node._asdict(), "apis": _documents(results.successes.get(node.id, {}))} for node in nodes])
    else:
        for node in nodes:
            if node.id in results.errors:
                click.echo(f"{_node_text(node)} -> ERROR: {results.errors[node.id]}")
                continue
            click.echo(f"{_node_text(node)} -> (")
            click.echo(",\n".join(f"\t{line}" for line in _lines(results[node.id])))
            click.echo(")")
    if results.errors:
        raise CommandFailed(f"{len(results.errors)} of {len(nodes)} brokers did not answer")


def _node_text(node: Node) -> str:
    fenced = str(node.fenced).lower()
    return f"{address_text(node.host, node.port)} (id: {node.id} rack: {node.rack or 'null'} isFenced: {fenced})"


def _usable(api: Api, served: tuple[int, int]) -> int | None:
    """Return the newest version that broker and client support, None without one."""
    known: VersionRange = api.request_class().VERSIONS
    newest = min(served[1], known.last)
    return newest if newest >= max(served[0], known.first) else None


def _lines(served: dict[int, tuple[int, int]]) -> list[str]:
    """Return a line for each API of a broker, by API key."""
    lines = []
    for key, (low, high) in sorted(served.items()):
        api = APIS.get(key)
        versions = str(low) if low == high else f"{low} to {high}"
        if api is None:
            lines.append(f"UNKNOWN({key}): {versions}")
            continue
        usable = _usable(api, (low, high))
        lines.append(f"{api.name}({key}): {versions} [{'unusable' if usable is None else f'usable: {usable}'}]")
    return lines


def _documents(served: dict[int, tuple[int, int]]) -> list[dict[str, object]]:
    documents: list[dict[str, object]] = []
    for key, (low, high) in sorted(served.items()):
        api = APIS.get(key)
        usable = _usable(api, (low, high)) if api is not None else None
        documents.append({"api_key": key, "name": api.name if api else None, "min": low, "max": high, "usable": usable})
    return documents
