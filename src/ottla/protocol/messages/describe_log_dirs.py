"""DescribeLogDirs: API 35, versions 0-5 (flexible from 2).

Versions by release: 0 in 1.0, 1 in 2.0, 2 in 2.6, 3 in 3.2, 4 in 3.3, 5 in 4.3.
"""

from ottla.protocol.schema import Array, Bool, Int16, Int32, Int64, Request, Response, String, Struct, field, message


class DescribableLogDirTopic(Struct):
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


@message(api=35, versions="0-5", flexible="2+")
class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    topics: list[DescribableLogDirTopic] | None = field(Array(DescribableLogDirTopic), nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = field(Int32)
    partition_size: int = field(Int64)
    offset_lag: int = field(Int64)
    is_future_key: bool = field(Bool)


class DescribeLogDirsTopic(Struct):
    name: str = field(String)
    partitions: list[DescribeLogDirsPartition] = field(Array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Struct):
    error_code: int = field(Int16)
    log_dir: str = field(String)
    topics: list[DescribeLogDirsTopic] = field(Array(DescribeLogDirsTopic))
    total_bytes: int = field(Int64, versions="4+", default=-1, ignorable=True)
    usable_bytes: int = field(Int64, versions="4+", default=-1, ignorable=True)
    is_cordoned: bool = field(Bool, versions="5+", ignorable=True)


@message(api=35, versions="0-5", flexible="2+")
class DescribeLogDirsResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16, versions="3+", ignorable=True)
    results: list[DescribeLogDirsResult] = field(Array(DescribeLogDirsResult))
