"""User data of Kafka's sticky assignor in a member's subscription (ConsumerProtocolSubscription), without a version.

Versions by release: 0 in 0.11, 1 (generation) in 2.3.
"""

from ottla.protocol.schema import Array, Int32, Message, String, Struct, field, message


class PreviousTopic(Struct):
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


@message(versions="0-1")
class StickyAssignorUserData(Message):
    previous_assignment: list[PreviousTopic] = field(Array(PreviousTopic))
    generation: int = field(Int32, versions="1+", default=-1, ignorable=True)
