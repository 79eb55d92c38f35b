"""Sequences of idempotent producers, and the snapshot that remembers them."""

import pytest

from ottla.log.producers import DamagedSnapshot, ProducerStates
from ottla.protocol.errors import INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, NONE, OUT_OF_ORDER_SEQUENCE_NUMBER
from ottla.records.batch import BatchHeader, build, read_header
from ottla.records.record import Record


def header(sequence: int, count: int = 10, *, epoch: int = 0, producer: int = 7, timestamp: int = 100) -> BatchHeader:
    records = [Record(i, timestamp, None, b"v") for i in range(count)]
    return read_header(build(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence), 0)


def at(batch: BatchHeader, offset: int) -> BatchHeader:
    batch.base_offset = offset
    return batch


def states(*sequences: int) -> ProducerStates:
    producers = ProducerStates()
    for number, sequence in enumerate(sequences):
        producers.appended(header(sequence), number * 10)
    return producers


def test_the_last_five_batches_are_known_again() -> None:
    producers = states(*range(0, 70, 10))
    for number in range(2, 7):
        code, duplicate = producers.check(header(number * 10))
        assert code == NONE
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.last_sequence) == (number * 10, number * 10 + 9)
    assert producers.check(header(10)) == (OUT_OF_ORDER_SEQUENCE_NUMBER, None)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (header(20), NONE),
        (header(21), OUT_OF_ORDER_SEQUENCE_NUMBER),
        (header(10, 9), OUT_OF_ORDER_SEQUENCE_NUMBER),
        (header(0, epoch=1), NONE),
        (header(20, epoch=1), OUT_OF_ORDER_SEQUENCE_NUMBER),
        (header(5, producer=8), NONE),
    ],
    ids=["next", "gap", "same start, other end", "new epoch", "new epoch in the middle", "unknown producer"],
)
def test_sequences_and_epochs_of_the_next_batch_are_checked(batch: BatchHeader, code: int) -> None:
    assert states(0, 10).check(batch) == (code, None)


def test_an_older_epoch_is_fenced() -> None:
    producers = states(0)
    producers.appended(header(0, epoch=3), 10)
    assert producers.check(header(10, epoch=2)) == (INVALID_PRODUCER_EPOCH, None)


def test_batches_before_a_snapshot_are_recalled() -> None:
    """A producer whose requests were in flight when the broker stopped repeats the oldest of them first."""
    producers = ProducerStates.from_snapshot(states(*range(0, 80, 10)).snapshot())
    earlier = [at(header(sequence), sequence) for sequence in range(0, 80, 10)]
    other = [at(header(40, epoch=1), 900), at(header(40, producer=8), 910)]
    producers.recall([*earlier[:4], *other, *earlier[4:]])
    for sequence in range(30, 80, 10):
        code, duplicate = producers.check(header(sequence))
        assert code == NONE
        assert duplicate is not None
        assert duplicate.first_offset == sequence
    assert producers.check(header(20)) == (OUT_OF_ORDER_SEQUENCE_NUMBER, None)
    assert producers.check(header(80)) == (NONE, None)
    assert producers.check(header(0, producer=8)) == (NONE, None)


def test_batches_that_do_not_continue_are_not_recalled() -> None:
    producers = ProducerStates.from_snapshot(states(*range(0, 80, 10)).snapshot())
    producers.recall([at(header(sequence), sequence) for sequence in (30, 40, 60)])
    assert producers.check(header(60))[0] == NONE
    assert producers.check(header(40)) == (OUT_OF_ORDER_SEQUENCE_NUMBER, None)


def test_sequences_wrap() -> None:
    producers = states(2**31 - 5)
    assert producers.check(header(5)) == (NONE, None)
    assert producers.check(header(6))[0] == OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_snapshot_remembers_the_last_batch() -> None:
    producers = ProducerStates.from_snapshot(states(0, 10).snapshot())
    code, duplicate = producers.check(header(10))
    assert code == NONE
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset) == (10, 19)
    assert producers.check(header(20)) == (NONE, None)
    assert producers.check(header(0)) == (OUT_OF_ORDER_SEQUENCE_NUMBER, None)


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], lambda data: b"\0\2" + data[2:]])
def test_a_damaged_snapshot_raises(damage: object) -> None:
    assert callable(damage)
    with pytest.raises(DamagedSnapshot):
        ProducerStates.from_snapshot(damage(states(0).snapshot()))


def test_idle_producers_are_forgotten() -> None:
    producers = states(0)
    producers.appended(header(0, producer=8, timestamp=200), 10)
    producers.expire(150)
    assert len(producers) == 1
    assert producers.check(header(33)) == (NONE, None)


def test_no_batch_comes_before_an_unverified_one() -> None:
    states = ProducerStates()
    states.begin_verification(7, 0, 20, 1_000, begins_at_zero=False)
    states.begin_verification(7, 0, 30, 1_000, begins_at_zero=False)
    assert states.check(header(30))[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(30, producer=8))[0] == NONE
    assert states.check(header(20))[0] == NONE
    states.begin_verification(7, 1, 40, 1_000, begins_at_zero=False)  # of a newer epoch, whatever its sequence
    states.begin_verification(7, 0, 10, 1_000, begins_at_zero=False)
    assert states.check(header(40, epoch=1))[0] == NONE
    states.appended(header(40, epoch=1), 0)
    assert states.check(header(50, epoch=1))[0] == OUT_OF_ORDER_SEQUENCE_NUMBER  # it was not transactional


def test_an_unknown_producer_begins_a_transaction_of_version_2_with_0() -> None:
    states = ProducerStates()
    states.begin_verification(7, 0, 20, 1_000, begins_at_zero=True)
    assert states.check(header(20))[0] == states.check(header(10))[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(0))[0] == NONE
    assert states.check(header(20, producer=8))[0] == NONE


def test_an_unverified_batch_is_forgotten_with_its_transaction_and_with_time() -> None:
    states = ProducerStates()
    first = read_header(
        build([Record(0, 100, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), 0
    )
    states.begin_verification(7, 0, 0, 1_000, begins_at_zero=False)
    assert states.check(header(1))[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
    states.appended(first, 0)
    assert states.check(header(1))[0] == INVALID_TXN_STATE  # in order, but the transaction is open
    states = ProducerStates()
    states.begin_verification(7, 0, 0, 1_000, begins_at_zero=False)
    states.ended(header(0), 5, 1)
    states.begin_verification(8, 0, 0, 1_000, begins_at_zero=False)
    states.expire(1_000)
    assert states.check(header(1, producer=8))[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
    states.expire(1_001)
    assert states.check(header(1, producer=8))[0] == NONE
