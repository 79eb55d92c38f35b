"""ApiVersions: API 18, versions 0-5 (flexible from 3).

Versions by release: 0 in 0.10.0, 1 in 0.11.0, 2 in 2.0, 3 in 2.4, 4 in 3.9, 5 in 4.4.
"""

from ottla.protocol.schema import Array, Bool, Int16, Int32, Int64, Request, Response, String, Struct, field, message


@message(api=18, versions="0-5", flexible="3+")
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    client_software_name: str = field(String, versions="3+", ignorable=True)
    client_software_version: str = field(String, versions="3+", ignorable=True)
    cluster_id: str | None = field(String, versions="5+", nullable="5+", default=None, ignorable=True)
    node_id: int = field(Int32, versions="5+", default=-1, ignorable=True)


class ApiVersion(Struct):
    api_key: int = field(Int16)
    min_version: int = field(Int16)
    max_version: int = field(Int16)


class SupportedFeatureKey(Struct):
    name: str = field(String, versions="3+")
    min_version: int = field(Int16, versions="3+")
    max_version: int = field(Int16, versions="3+")


class FinalizedFeatureKey(Struct):
    name: str = field(String, versions="3+")
    max_version_level: int = field(Int16, versions="3+")
    min_version_level: int = field(Int16, versions="3+")


@message(api=18, versions="0-5", flexible="3+")
class ApiVersionsResponse(Response):
    error_code: int = field(Int16)
    api_keys: list[ApiVersion] = field(Array(ApiVersion))
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        Array(SupportedFeatureKey), versions="3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = field(Int64, versions="3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        Array(FinalizedFeatureKey), versions="3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = field(Bool, versions="3+", tag=3, ignorable=True)
