"""DescribeLogDirs: partitions and sizes by log directory, and free space (KIP-113, KIP-827).

Authorization
    cluster: DESCRIBE   CLUSTER_AUTHORIZATION_FAILED; before version 3 an empty response

Behaviour
    topics null               every partition of this broker
    unknown topic, partition  left out
    every directory answers, with or without partitions asked for
    a directory that is offline  KAFKA_STORAGE_ERROR, without partitions
    a move                       the copy shows with is_future_key and the offsets that it lacks

Versions
    3  an error for the whole
    4  bytes of the volume, in all and free
    5  whether the directory is cordoned (KIP-1066)
"""

from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.security.operations import AclOperation


@handles(DescribeLogDirsRequest, rows="topics.partitions", is_whole=True, response_rows="results.topics.partitions")
async def describe_log_dirs(request: DescribeLogDirsRequest, broker: Broker) -> DescribeLogDirsResponse:
    if not may_use_cluster(request.context, AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=CLUSTER_AUTHORIZATION_FAILED)
    asked: set[tuple[str, int]] | None = None
    if request.topics is not None:
        asked = set()
        for named in request.topics:
            for index in named.partitions:
                await broker.tasks.pace()
                asked.add((named.topic, index))
    results = [_error_row(path) for path in broker.replicas.missing]
    for directory in broker.replicas.directories:
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        if directory.offline is not None:
            results.append(_error_row(directory.path))
            continue
        for (topic, index), log in list(directory.logs().items()):
            await broker.tasks.pace()
            if asked is None or (topic, index) in asked:
                lies = DescribeLogDirsPartition(partition_index=index, partition_size=log.size)
                topics.setdefault(topic, []).append(lies)
        for (topic, index), copy in directory.futures.items():
            if asked is None or (topic, index) in asked:
                comes = DescribeLogDirsPartition(
                    partition_index=index, partition_size=copy.size, offset_lag=copy.lag, is_future_key=True
                )
                topics.setdefault(topic, []).append(comes)
        total, usable = directory.room()
        results.append(
            DescribeLogDirsResult(
                log_dir=str(directory.path.absolute()),
                topics=[DescribeLogDirsTopic(name=name, partitions=parts) for name, parts in topics.items()],
                total_bytes=total,
                usable_bytes=usable,
                is_cordoned=directory.is_cordoned,
            )
        )
    return DescribeLogDirsResponse(results=results)


def _error_row(path: Path) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=KAFKA_STORAGE_ERROR, log_dir=str(path.absolute()))
