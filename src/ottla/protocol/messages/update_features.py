"""UpdateFeatures: API 57, versions 0-2 (flexible from 0).

Versions by release: 0 in 2.7, 1 in 3.3, 2 in 4.0.
"""

from ottla.protocol.schema import (
    MOST_OF_ADMINISTRATION,
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    field,
    message,
)


class FeatureUpdateKey(Struct):
    feature: str = field(String)
    max_version_level: int = field(Int16)
    allow_downgrade: bool = field(Bool, versions="0")
    upgrade_type: int = field(Int8, versions="1+", default=1)


@message(api=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"]):
    ELEMENTS = MOST_OF_ADMINISTRATION
    timeout_ms: int = field(Int32, default=60000)
    feature_updates: list[FeatureUpdateKey] = field(Array(FeatureUpdateKey))
    validate_only: bool = field(Bool, versions="1+")


class UpdatableFeatureResult(Struct):
    feature: str = field(String, versions="0-1")
    error_code: int = field(Int16, versions="0-1")
    error_message: str | None = field(String, versions="0-1", nullable="0-1")


@message(api=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    results: list[UpdatableFeatureResult] = field(Array(UpdatableFeatureResult), versions="0-1", ignorable=True)
