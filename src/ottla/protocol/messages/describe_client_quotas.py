"""DescribeClientQuotas: API 48, versions 0-1 (flexible from 1).

Versions by release: 0 in 2.6, 1 in 2.8.
"""

from ottla.protocol.schema import (
    MOST_OF_ADMINISTRATION,
    Array,
    Bool,
    Float64,
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


class ComponentData(Struct):
    entity_type: str = field(String)
    match_type: int = field(Int8)
    match: str | None = field(String, nullable="0+")


@message(api=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    ELEMENTS = MOST_OF_ADMINISTRATION
    components: list[ComponentData] = field(Array(ComponentData))
    strict: bool = field(Bool)


class EntityData(Struct):
    entity_type: str = field(String)
    entity_name: str | None = field(String, nullable="0+")


class ValueData(Struct):
    key: str = field(String)
    value: float = field(Float64)


class EntryData(Struct):
    entity: list[EntityData] = field(Array(EntityData))
    values: list[ValueData] = field(Array(ValueData))


@message(api=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    entries: list[EntryData] | None = field(Array(EntryData), nullable="0+")
