"""Requests about share partitions, handed to the share coordinator one by one and answered together (APIs 83 to 87).

An empty group id, no topics, or any topic without partitions: an empty answer. A partition that is named twice is asked about
twice and answered once, last word first.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.coordinators.runtime import Operation, gather
from ottla.coordinators.share.state import share_key
from ottla.protocol.answer import Answer

if TYPE_CHECKING:
    from ottla.broker.lifecycle import Broker

P = TypeVar("P")
R = TypeVar("R")
W = TypeVar("W")


def ask_each(
    broker: "Broker",
    group_id: str,
    topics: Iterable[tuple[bytes, Sequence[P]]],
    operation: Operation[Any, R],
    question: Callable[[bytes, P], Any],
    combine: Callable[[dict[bytes, list[tuple[int, R]]]], W],
) -> Answer[W]:
    """Run `operation` with `question(topic id, partition's data)` for each partition; `combine` makes the response of
    (partition, answer) by topic id."""
    wanted = list(topics)
    if not group_id or not all(partitions for _, partitions in wanted):
        return combine({})
    coordinator = broker.coordination.shares
    questions = [question(topic_id, each) for topic_id, partitions in wanted for each in partitions]
    answers = [
        coordinator.run(share_key(group_id, each.topic_id, each.partition), operation, each) for each in questions
    ]

    def combined(found: list[R]) -> W:
        last = {(each.topic_id, each.partition): answer for each, answer in zip(questions, found, strict=True)}
        by_topic: dict[bytes, list[tuple[int, R]]] = {}
        for (topic_id, partition), answer in last.items():
            by_topic.setdefault(topic_id, []).append((partition, answer))
        return combine(by_topic)

    return gather(answers, combined)
