"""AlterClientQuotas: API 49, versions 0-1 (flexible from 1).

Versions by release: 0 in 2.6, 1 in 2.8.
"""

from ottla.protocol.schema import (
    MOST_OF_CHANGES,
    Array,
    Bool,
    Float64,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    field,
    message,
)


class EntityData(Struct):
    entity_type: str = field(String)
    entity_name: str | None = field(String, nullable="0+")


class OpData(Struct):
    key: str = field(String)
    value: float = field(Float64)
    remove: bool = field(Bool)


class EntryData(Struct):
    entity: list[EntityData] = field(Array(EntityData))
    ops: list[OpData] = field(Array(OpData))


@message(api=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"]):
    ELEMENTS = MOST_OF_CHANGES
    entries: list[EntryData] = field(Array(EntryData))
    validate_only: bool = field(Bool)


class AlterClientQuotasResponseEntryData(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    entity: list[EntityData] = field(Array(EntityData))


@message(api=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse(Response):
    throttle_time_ms: int = field(Int32)
    entries: list[AlterClientQuotasResponseEntryData] = field(Array(AlterClientQuotasResponseEntryData))
