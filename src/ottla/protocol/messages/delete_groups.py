"""DeleteGroups: API 42, versions 0-3 (flexible from 2).

Versions by release: 0 in 1.1, 1 in 2.0, 2 in 2.4, 3 in 4.4.
"""

from ottla.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct, field, message


@message(api=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    groups_names: list[str] = field(Array(String))


class DeletableGroupResult(Struct):
    group_id: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(String, versions="3+", nullable="3+", default=None, ignorable=True)


@message(api=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse(Response):
    throttle_time_ms: int = field(Int32)
    results: list[DeletableGroupResult] = field(Array(DeletableGroupResult))
