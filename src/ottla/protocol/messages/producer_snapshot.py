"""The .snapshot file of a partition: the last batch of every producer."""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Message, Struct, Uint32, field, message


class ProducerEntry(Struct):
    producer_id: int = field(Int64, versions="1+")
    epoch: int = field(Int16, versions="1+")
    last_sequence: int = field(Int32, versions="1+")
    last_offset: int = field(Int64, versions="1+")
    offset_delta: int = field(Int32, versions="1+")
    timestamp: int = field(Int64, versions="1+")
    coordinator_epoch: int = field(Int32, versions="1+")
    current_txn_first_offset: int = field(Int64, versions="1+")


@message(versions="1")
class ProducerSnapshot(Message):
    crc: int = field(Uint32, versions="1+")
    producer_entries: list[ProducerEntry] = field(Array(ProducerEntry), versions="1+")
