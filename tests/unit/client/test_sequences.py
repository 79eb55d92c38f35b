"""The batches that may be sent next, and the effects of responses."""

from ottla.client.producer.sequences import BatchVerdict, PartitionQueue, SequencedBatch
from ottla.client.topics import TopicPartition
from ottla.protocol import errors

ME = (9, 0)
NEXT = (9, 1)


def queue_of(count: int, **settings: int) -> PartitionQueue:
    queue = PartitionQueue(idempotent=True, **settings)
    for _ in range(count):
        queue.add(SequencedBatch(TopicPartition("t", 0), b"", 10, 0))
    return queue


def test_five_are_on_their_way_at_most() -> None:
    queue = queue_of(8)
    queue.remove_acknowledged(queue.take(ME))
    taken = [queue.take(ME).sequence for _ in range(5) if queue.next(ME)]
    assert taken == [10, 20, 30, 40, 50]
    assert queue.next(ME) is None


def test_one_is_on_its_way_until_the_broker_has_state_of_the_producer() -> None:
    """It accepts any first sequence: the second batch was in the log, and the first one could not be appended any more."""
    queue = queue_of(4)
    first = queue.take(ME)
    assert queue.next(ME) is None
    queue.again(first)
    assert queue.take(ME) is first
    assert queue.next(ME) is None
    queue.remove_acknowledged(first)
    second, third = queue.take(ME), queue.take(ME)
    queue.remove_acknowledged(second)
    queue.remove_acknowledged(third)
    queue.begin_topic(bytes(16))  # created again: it knows nothing
    assert queue.take(ME).sequence == 30
    queue.add(SequencedBatch(TopicPartition("t", 0), b"", 10, 0))
    assert queue.next(ME) is None


def test_batches_of_a_deleted_topic_are_renumbered_in_the_recreated_one() -> None:
    queue = queue_of(3)
    first, second, third = queue.take(ME), queue.take(ME), queue.take(ME)
    queue.give_up(first)
    third.uncertain = True
    queue.again(second)
    queue.again(third)
    assert queue.next(ME) is third
    queue.begin_topic(bytes(16))
    assert queue.wants_identity()
    queue.renumber(NEXT)
    assert queue.take(NEXT) is second


def test_another_producer_id_begins_with_one_batch() -> None:
    queue = queue_of(3)
    queue.remove_acknowledged(queue.take(ME))
    queue.take((10, 0))
    assert queue.next((10, 0)) is None


def test_after_a_failure_all_answers_are_awaited_then_the_oldest_goes_first() -> None:
    queue = queue_of(3)
    first, second, third = queue.take(ME), queue.take(ME), queue.take(ME)
    queue.again(second)
    assert queue.next(ME) is None
    queue.again(third)
    queue.remove_acknowledged(first)
    assert [queue.take(ME).sequence, queue.take(ME).sequence] == [10, 20]


def test_five_are_counted_from_the_oldest_that_is_open() -> None:
    queue = queue_of(7)
    first, second = queue.take(ME), queue.take(ME)  # as if the broker had state
    queue.again(first)
    queue.remove_acknowledged(second)
    assert [queue.take(ME).sequence for _ in range(4) if queue.next(ME)] == [0, 20, 30, 40]
    assert queue.next(ME) is None
    queue.remove_acknowledged(first)
    assert queue.take(ME).sequence == 50


def test_out_of_order_behind_a_failed_one_is_sent_again() -> None:
    queue = queue_of(2)
    queue.take(ME)
    second = queue.take(ME)
    assert queue.verdict(second, errors.OUT_OF_ORDER_SEQUENCE_NUMBER) is BatchVerdict.AGAIN


def test_out_of_order_of_the_oldest_means_loss() -> None:
    queue = queue_of(2)
    first = queue.take(ME)
    assert queue.verdict(first, errors.OUT_OF_ORDER_SEQUENCE_NUMBER) is BatchVerdict.REFUSED


def test_a_duplicate_counts_as_acknowledged() -> None:
    queue = queue_of(1)
    assert queue.verdict(queue.take(ME), errors.DUPLICATE_SEQUENCE_NUMBER) is BatchVerdict.ACKNOWLEDGED


def test_sequences_go_back_to_zero_after_the_largest() -> None:
    queue = queue_of(0)
    for count in (2**31 - 5, 10, 1):
        queue.add(SequencedBatch(TopicPartition("t", 0), b"", count, 0))
    assert [queue.take(ME).sequence for _ in range(3)] == [0, 2**31 - 5, 5]


def test_behind_a_refused_batch_all_is_renumbered_once_everything_is_answered() -> None:
    queue = queue_of(3)
    first, second, third = queue.take(ME), queue.take(ME), queue.take(ME)
    queue.give_up(first)
    assert queue.verdict(second, errors.OUT_OF_ORDER_SEQUENCE_NUMBER) is BatchVerdict.AGAIN
    queue.again(second)
    assert not queue.wants_identity()
    assert queue.verdict(third, errors.OUT_OF_ORDER_SEQUENCE_NUMBER) is BatchVerdict.AGAIN
    queue.again(third)
    assert queue.wants_identity()
    queue.renumber(NEXT)
    assert [(batch.sequence, batch.identity) for batch in (queue.take(NEXT), queue.take(NEXT))] == [
        (0, NEXT),
        (10, NEXT),
    ]


def test_a_batch_behind_a_refused_one_keeps_its_number_until_its_answer_is_known() -> None:
    """A broker without state of the producer accepts any first sequence."""
    queue = queue_of(4)
    first, second, third, fourth = (queue.take(ME) for _ in range(4))
    queue.give_up(first)
    for batch in (third, fourth):
        batch.uncertain = True
    for batch in (second, third, fourth):
        queue.again(batch)
    assert not queue.wants_identity()
    assert (queue.take(ME), queue.take(ME), queue.next(ME)) == (third, fourth, None)
    assert queue.verdict(third, errors.DUPLICATE_SEQUENCE_NUMBER) is BatchVerdict.ACKNOWLEDGED
    queue.remove_acknowledged(third)
    assert queue.verdict(fourth, errors.OUT_OF_ORDER_SEQUENCE_NUMBER) is BatchVerdict.AGAIN
    queue.again(fourth)
    assert queue.wants_identity()
    queue.renumber(NEXT)
    assert [queue.take(NEXT).sequence for _ in range(2)] == [0, 10]


def test_batches_sent_before_a_rejected_one_keep_their_sequences() -> None:
    queue = queue_of(3)
    first, second, third = queue.take(ME), queue.take(ME), queue.take(ME)
    first.uncertain = True
    queue.again(first)
    queue.give_up(second)
    queue.again(third)
    assert not queue.wants_identity()
    assert (queue.take(ME).sequence, queue.next(ME)) == (0, None)
    queue.remove_acknowledged(first)
    assert queue.wants_identity()


def test_behind_an_expired_batch_the_numbers_stay_until_a_broker_has_answered() -> None:
    queue = queue_of(3)
    first, second = queue.take(ME), queue.take(ME)
    first.uncertain = second.uncertain = True
    queue.again(first)
    queue.again(second)
    queue.give_up(queue.waiting.popleft())
    assert not queue.wants_identity()
    assert queue.take(ME).sequence == 10
    assert queue.next(ME) is None  # the third one has no number yet
    queue.remove_acknowledged(second)
    assert not queue.wants_identity()  # the first was appended, or the second could not have been
    assert queue.take(ME).sequence == 20


def test_out_of_order_behind_an_expired_batch_requires_another_identity() -> None:
    queue = queue_of(2)
    first, second = queue.take(ME), queue.take(ME)
    first.uncertain = second.uncertain = True
    queue.again(first)
    queue.give_up(queue.waiting.popleft())
    assert queue.verdict(second, errors.OUT_OF_ORDER_SEQUENCE_NUMBER) is BatchVerdict.AGAIN
    queue.again(second)
    assert queue.wants_identity()


def test_another_identity_is_used_when_all_sent_batches_expired() -> None:
    queue = queue_of(2)
    queue.take(ME).uncertain = True
    queue.again(queue.in_flight[0])
    queue.give_up(queue.waiting.popleft())
    assert queue.wants_identity()
    queue.renumber(NEXT)
    assert queue.take(NEXT).sequence == 0


def test_another_identity_waits_for_all_batches_in_flight() -> None:
    """Its sequence 0 would overtake them."""
    queue = queue_of(2)
    first = queue.take(ME)
    assert queue.next(NEXT) is None
    queue.remove_acknowledged(first)
    assert queue.next(NEXT) is not None
    second = queue.take(NEXT)
    assert (second.sequence, second.identity) == (0, NEXT)
