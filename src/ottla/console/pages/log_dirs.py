"""Log directories of the brokers, with the largest replicas."""

from typing import Final, NamedTuple

from starlette.responses import Response

from ottla.client.admin.log_dirs import LogDir
from ottla.client.topics import TopicPartition
from ottla.console.clusters import TIMEOUT_S
from ottla.console.visit import Visit, page

_MOST_REPLICAS: Final = 50


class DirectoryRow(NamedTuple):
    """Log directory of a broker."""

    node: int
    path: str
    directory: LogDir
    size: int
    state: str


class ReplicaRow(NamedTuple):
    """Replica in a log directory, sorted by size."""

    size: int
    partition: TopicPartition
    node: int
    path: str
    offset_lag: int
    is_future: bool


async def log_dirs(visit: Visit) -> Response:
    """Show the log directories."""
    nodes = [node.id for node in (await visit.cluster.description()).nodes if not node.fenced]
    described = await visit.admin.describe_log_dirs(nodes, timeout=TIMEOUT_S)
    rows, replicas = [], []
    for node, directories in sorted(described.successes.items()):
        for path, directory in sorted(directories.items()):
            size = sum(replica.size for replica in directory.replicas.values())
            state = "offline" if directory.error is not None else "cordoned" if directory.is_cordoned else "online"
            rows.append(DirectoryRow(node, path, directory, size, state))
            replicas += [
                ReplicaRow(replica.size, partition, node, path, replica.offset_lag, replica.is_future)
                for partition, replica in directory.replicas.items()
            ]
    replicas.sort(reverse=True)
    return visit.render(
        "log_dirs.html",
        title="Log directories",
        rows=rows,
        replicas=replicas[:_MOST_REPLICAS],
        count=len(replicas),
        errors=[f"Broker {node}: {error}" for node, error in described.errors.items()],
    )


ROUTES = [page("/log-dirs", log_dirs)]
