"""ListTransactions: API 66, versions 0-2 (flexible from 0).

Versions by release: 0 in 3.0, 1 in 3.8, 2 in 4.1.
"""

from ottla.protocol.schema import (
    MOST_OF_ADMINISTRATION,
    Array,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    field,
    message,
)


@message(api=66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    ELEMENTS = MOST_OF_ADMINISTRATION
    state_filters: list[str] = field(Array(String))
    producer_id_filters: list[int] = field(Array(Int64))
    duration_filter: int = field(Int64, versions="1+", default=-1)
    transactional_id_pattern: str | None = field(String, versions="2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    transaction_state: str = field(String)


@message(api=66, versions="0-2", flexible="0+")
class ListTransactionsResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    unknown_state_filters: list[str] = field(Array(String))
    transaction_states: list[TransactionState] = field(Array(TransactionState))
