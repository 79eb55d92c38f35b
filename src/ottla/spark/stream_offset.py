"""State of a stream that Spark keeps between two batches: offsets as JSON.

The shape is that of Spark's own Kafka source, so that its checkpoints can be taken over; what we need beyond it stands under
names that no topic can have:

    {"t": {"0": 42, "1": 17},              ends, exclusive
     "#topicIds": {"t": "Xk3v..."},        which topic of that name it was
     "#start": true,                       where a query begins that has no batch yet; never in a checkpoint
     "#from": {"t": {"0": 40, "1": 17}},   in the first batch's end: where that batch begins
     "#acquired": {"t": {"0": [[40, 41]]}},   with shareGroup: the offsets that the batch consists of, inclusive
     "#turn": 7,                           with shareGroup: grows with each batch, the same offsets may come again
     "#member": "Kd83..."}                 with shareGroup: the member that the query is

Spark asks where a query begins, and forgets the answer if the query dies before its first batch is committed; it keeps the end
of a batch. Hence "#from": a first batch that is run again reads what it read before, also with startingOffsets=latest.
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
    topic_ids  of topics that have one, by name
    is_start   no batch has ended here: a query begins here
    begins     where the first batch begins, in its end only
    acquired   offsets (inclusive on both ends) that a share group gave to this batch
    turn       the number of the batch that a share group gave
    member     as which the share group knows the query
    """

    positions: Positions
    topic_ids: dict[str, bytes]
    is_start: bool = False
    begins: Positions | None = None
    acquired: AcquiredRanges | None = None
    turn: int = 0
    member: str | None = None

    def json(self) -> dict[str, Any]:
        """For Spark."""
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
    """Return the offset of JSON that `StreamOffset.json` returned, or of Spark's own Kafka source."""
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
