"""Overview: brokers, controller, totals, and partitions that lack replicas or a leader."""

from collections import Counter
from typing import Final, NamedTuple

from starlette.responses import JSONResponse, Response

from ottla.addresses import address_text
from ottla.client.admin.cluster import ClusterDescription
from ottla.client.errors import KafkaError
from ottla.console.clusters import TIMEOUT_S
from ottla.console.visit import Visit, page
from ottla.protocol.messages.metadata import MetadataResponse

_MOST_UNHEALTHY: Final = 200


class BrokerRow(NamedTuple):
    """Broker with the numbers of partitions that it leads, has replicas of, and lags behind on."""

    id: int
    address: str
    rack: str | None
    state: str
    is_controller: bool
    leads: int
    replicas: int
    behind: int
    size: int | None


class UnhealthyPartition(NamedTuple):
    """Partition without a leader, or with replicas that are not in sync."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]


async def overview(visit: Visit) -> Response:
    """Show the cluster."""
    cluster = visit.cluster
    described = await cluster.description()
    metadata = await cluster.metadata()
    groups, group_error = await _groups(visit)
    rows = await broker_rows(visit, described)
    unhealthy = _unhealthy(metadata)
    return visit.render(
        "overview.html",
        title="Overview",
        described=described,
        brokers=rows,
        topic_count=len(metadata.topics),
        partition_count=sum(len(topic.partitions) for topic in metadata.topics),
        group_count=groups,
        group_error=group_error,
        unhealthy=unhealthy[:_MOST_UNHEALTHY],
        unhealthy_count=len(unhealthy),
        total_size=sum(known) if (known := [row.size for row in rows if row.size is not None]) else None,
    )


async def broker_rows(visit: Visit, described: ClusterDescription) -> list[BrokerRow]:
    """Return the brokers of the cluster, and those that only replicas name."""
    metadata = await visit.cluster.metadata()
    sizes = await _sizes(visit, [node.id for node in described.nodes if not node.fenced])
    leads, replicas, behind = Counter[int](), Counter[int](), Counter[int]()
    for topic in metadata.topics:
        for partition in topic.partitions:
            leads[partition.leader_id] += 1
            replicas.update(partition.replica_nodes)
            behind.update(node for node in partition.replica_nodes if node not in partition.isr_nodes)
    rows = [
        BrokerRow(
            node.id,
            address_text(node.host, node.port),
            node.rack,
            "fenced" if node.fenced else "running",
            node.id == described.controller,
            leads[node.id],
            replicas[node.id],
            behind[node.id],
            sizes.get(node.id),
        )
        for node in described.nodes
    ]
    known = [node.id for node in described.nodes]
    rows += [
        BrokerRow(node, "–", None, "missing", False, 0, replicas[node], behind[node], None)
        for node in sorted(replicas)
        if node not in known
    ]
    return rows


async def rates(visit: Visit) -> Response:
    """Return the rates of the cluster over time, for the charts."""
    sampler, after = visit.cluster.sampler, visit.integer("after", -1, -1)
    named = {"messages_in": sampler.messages_in, "messages_out": sampler.messages_out, "bytes_in": sampler.bytes_in}
    return JSONResponse({"series": {name: series.points(after) for name, series in named.items()}})


def _unhealthy(metadata: MetadataResponse) -> list[UnhealthyPartition]:
    return [
        UnhealthyPartition(
            topic.name or "",
            partition.partition_index,
            partition.leader_id,
            list(partition.replica_nodes),
            list(partition.isr_nodes),
        )
        for topic in metadata.topics
        for partition in topic.partitions
        if partition.leader_id < 0 or len(partition.isr_nodes) < len(partition.replica_nodes)
    ]


async def _groups(visit: Visit) -> tuple[int | None, str]:
    """Return the number of groups, or None and the reason."""
    try:
        return len(await visit.admin.list_groups(timeout=TIMEOUT_S)), ""
    except KafkaError as error:
        return None, str(error)


async def _sizes(visit: Visit, nodes: list[int]) -> dict[int, int]:
    """Return the size of the replicas of each broker that reports it."""
    try:
        described = await visit.admin.describe_log_dirs(nodes, timeout=TIMEOUT_S)
    except KafkaError:
        return {}
    return {
        node: sum(replica.size for directory in directories.values() for replica in directory.replicas.values())
        for node, directories in described.successes.items()
    }


ROUTES = [page("", overview), page("/rates", rates)]
