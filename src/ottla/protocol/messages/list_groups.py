"""ListGroups: API 16, versions 0-5 (flexible from 3).

Versions by release: 0 in 0.9.0, 1 in 0.11.0, 2 in 2.0, 3 in 2.4, 4 in 2.6, 5 in 3.8.
"""

from ottla.protocol.schema import (
    MOST_OF_ADMINISTRATION,
    Array,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    field,
    message,
)


@message(api=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Request["ListGroupsResponse"]):
    ELEMENTS = MOST_OF_ADMINISTRATION
    states_filter: list[str] = field(Array(String), versions="4+")
    types_filter: list[str] = field(Array(String), versions="5+")


class ListedGroup(Struct):
    group_id: str = field(String)
    protocol_type: str = field(String)
    group_state: str = field(String, versions="4+", ignorable=True)
    group_type: str = field(String, versions="5+", ignorable=True)


@message(api=16, versions="0-5", flexible="3+")
class ListGroupsResponse(Response):
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    error_code: int = field(Int16)
    groups: list[ListedGroup] = field(Array(ListedGroup))
