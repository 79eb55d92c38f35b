"""What may be sent next, and what an answer means."""

from ottla.client.producer.sequences import Batch, PartitionQueue, Verdict
from ottla.client.topics import TopicPartition
from ottla.protocol import errors


def queue_of(count: int, **settings: int) -> PartitionQueue:
    queue = PartitionQueue(idempotent=True, **settings)
    for _ in range(count):
        queue.add(Batch(TopicPartition("t", 0), b"", 10, 0))
    return queue


def test_five_are_on_their_way_at_most() -> None:
    queue = queue_of(7)
    taken = [queue.take().sequence for _ in range(5) if queue.next()]
    assert taken == [0, 10, 20, 30, 40]
    assert queue.next() is None


def test_after_a_failure_all_answers_are_awaited_then_the_oldest_goes_first() -> None:
    queue = queue_of(3)
    first, second, third = queue.take(), queue.take(), queue.take()
    queue.again(second)
    assert queue.next() is None
    queue.again(third)
    queue.done(first)
    assert [queue.take().sequence, queue.take().sequence] == [10, 20]


def test_five_are_counted_from_the_oldest_that_is_open() -> None:
    queue = queue_of(7)
    first, second = queue.take(), queue.take()
    queue.again(first)
    queue.done(second)
    assert [queue.take().sequence for _ in range(4) if queue.next()] == [0, 20, 30, 40]
    assert queue.next() is None
    queue.done(first)
    assert queue.take().sequence == 50


def test_out_of_order_behind_a_failed_one_is_sent_again() -> None:
    queue = queue_of(2)
    queue.take()
    second = queue.take()
    assert queue.verdict(second, errors.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.AGAIN


def test_out_of_order_of_the_oldest_means_loss() -> None:
    queue = queue_of(2)
    first = queue.take()
    assert queue.verdict(first, errors.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.REFUSED


def test_a_duplicate_is_as_good_as_acknowledged() -> None:
    queue = queue_of(1)
    assert queue.verdict(queue.take(), errors.DUPLICATE_SEQUENCE_NUMBER) is Verdict.ACKNOWLEDGED


def test_sequences_go_back_to_zero_after_the_largest() -> None:
    queue = queue_of(0)
    for count in (2**31 - 5, 10, 1):
        queue.add(Batch(TopicPartition("t", 0), b"", count, 0))
    assert [queue.take().sequence for _ in range(3)] == [0, 2**31 - 5, 5]
