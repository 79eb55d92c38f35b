"""An entry of a .txnindex file: one aborted transaction of a segment."""

from ottla.protocol.schema import Int64, Message, field, message


@message(versions="0")
class AbortedTxn(Message):
    producer_id: int = field(Int64)
    first_offset: int = field(Int64)
    last_offset: int = field(Int64)
    last_stable_offset: int = field(Int64)
