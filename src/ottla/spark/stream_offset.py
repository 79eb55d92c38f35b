"""Offset of a stream as JSON, which Spark stores in the checkpoint.

The shape is that of Spark's own Kafka source, so its checkpoints can be used; additional fields have names that are invalid as
topic names:

    {"t": {"0": 42, "1": 17},              end offsets, exclusive
     "#topicIds": {"t": "Xk3v..."},        topic ids
     "#start": true,                       start of a query without a batch; never in a checkpoint
     "#from": {"t": {"0": 40, "1": 17}},   in the end offset of the first batch: its start offsets
     "#acquired": {"t": {"0": [[40, 41]]}},   with shareGroup: offset ranges of the batch, inclusive
     "#turn": 7,                           with shareGroup: batch counter, as the same offsets may be delivered again
     "#member": "Kd83..."}                 with shareGroup: member id of the query

Spark does not store the initial offset before the first batch is committed, but it stores the planned end of a batch. Hence
"#from": a first batch that is run again reads the same records, also with startingOffsets=latest.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.client.topics import TopicPartition
from ottla.protocol.uuids import uuid_bytes, uuid_text
from ottla.spark.offsets import Positions, from_json, to_json

_IDS: Final = "#topicIds"
_START: Final = "#start"
_FROM: Final = "#from"
_ACQUIRED: Final = "#acquired"
_TURN: Final = "#turn"
_MEMBER: Final = "#member"

AcquiredRanges = dict[TopicPartition, list[tuple[int, int]]]


class StreamOffset(NamedTuple):
    """End offsets of partitions, and the other contents of a checkpoint.

    positions  offsets, exclusive
    topic_ids  topic ids by name, without topics that have none
    is_start   initial offset of a query without a committed batch
    begins     start offsets of the first batch; only in its end offset
    acquired   offset ranges (inclusive) that the share group delivered for this batch
    turn       batch counter of a share group stream
    member     member id in the share group
    """

    positions: Positions
    topic_ids: dict[str, bytes]
    is_start: bool = False
    begins: Positions | None = None
    acquired: AcquiredRanges | None = None
    turn: int = 0
    member: str | None = None

    def json(self) -> dict[str, Any]:
        """Return the JSON document for Spark."""
        document: dict[str, Any] = dict(to_json(self.positions))
        if self.topic_ids:
            document[_IDS] = {name: uuid_text(topic_id) for name, topic_id in sorted(self.topic_ids.items())}
        if self.is_start:
            document[_START] = True
        if self.begins is not None:
            document[_FROM] = to_json(self.begins)
        if self.acquired is not None:
            topics: dict[str, dict[str, list[tuple[int, int]]]] = {}
            for partition, ranges in sorted(self.acquired.items()):
                topics.setdefault(partition.topic, {})[str(partition.partition)] = ranges
            document[_ACQUIRED] = topics
        if self.turn:
            document[_TURN] = self.turn
        if self.member is not None:
            document[_MEMBER] = self.member
        return document


def stream_offset(json: Mapping[str, Any]) -> StreamOffset:
    """Parse the JSON of `StreamOffset.json`, or of Spark's own Kafka source."""
    positions = from_json({name: parts for name, parts in json.items() if not name.startswith("#")})
    ids = {name: uuid_bytes(text) for name, text in json.get(_IDS, {}).items()}
    begins = from_json(json[_FROM]) if _FROM in json else None
    acquired: AcquiredRanges | None = None
    if _ACQUIRED in json:
        acquired = {
            TopicPartition(topic, int(number)): [(int(first), int(last)) for first, last in ranges]
            for topic, parts in json[_ACQUIRED].items()
            for number, ranges in parts.items()
        }
    turn, member = int(json.get(_TURN, 0)), json.get(_MEMBER)
    return StreamOffset(positions, ids, bool(json.get(_START)), begins, acquired, turn, member)
