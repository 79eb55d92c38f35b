"""A batch of records that a share group has locked, with a member that answers as it is told."""
# ruff: noqa: E402 - an older PySpark lacks what is imported

import logging
import threading
from collections.abc import Iterator
from typing import cast

import pytest

from tests.spark import skip_module_before

skip_module_before("4.2")

from ottla.client.blocking import ShareConsumer
from ottla.client.errors import IllegalState, KafkaError, RequestTimedOut
from ottla.client.share.delivery import AcknowledgeType
from ottla.client.topics import TopicPartition
from ottla.records.record import Origin, Record
from ottla.spark.sharing import ShareGroupBatch, ranges_of


def record(offset: int, partition: int = 0) -> Record:
    return Record(offset, 0, None, b"v", origin=Origin("t", partition))


class Member:
    """The methods of a share consumer that a batch uses; locks last 30 ms, so they are renewed every 10.

    answers  the error of each commit, None for success; later commits succeed
    """

    def __init__(self, *answers: KafkaError | None) -> None:
        self.acknowledgements: list[AcknowledgeType] = []
        self.renewed = threading.Event()
        self._answers: Iterator[KafkaError | None] = iter(answers)

    def acquisition_lock_timeout_ms(self) -> int:
        return 30

    def acknowledge(self, record: Record, kind: AcknowledgeType) -> None:
        del record
        self.acknowledgements.append(kind)

    def commit(self) -> dict[TopicPartition, KafkaError | None]:
        error = next(self._answers, None)
        if error is not None:
            raise error
        if self.acknowledgements[-1] is AcknowledgeType.RENEW:
            self.renewed.set()
        return {TopicPartition("t", 0): None}


def batch_of(member: Member, *records: Record) -> ShareGroupBatch:
    return ShareGroupBatch(cast("ShareConsumer", member), list(records), 1)


def test_a_renewal_that_comes_too_late_is_not_the_last_one() -> None:
    member = Member(RequestTimedOut("no answer"), RequestTimedOut("no answer"))
    batch = batch_of(member, record(0))
    assert member.renewed.wait(20)
    batch.settle(AcknowledgeType.ACCEPT)
    assert member.acknowledgements[:3] == [AcknowledgeType.RENEW] * 3
    assert member.acknowledgements[-1] is AcknowledgeType.ACCEPT


def test_settled_records_are_not_renewed() -> None:
    member = Member()
    batch = batch_of(member, record(0), record(1))
    assert member.renewed.wait(20)
    batch.settle(AcknowledgeType.ACCEPT)
    assert member.acknowledgements[-2:] == [AcknowledgeType.ACCEPT] * 2
    assert "ottla-renew" not in [thread.name for thread in threading.enumerate()]


def test_a_timeout_of_an_acknowledgement_does_not_end_the_query(caplog: pytest.LogCaptureFixture) -> None:
    member = Member(*[RequestTimedOut("no answer within 60000 ms")] * 1000)
    batch = batch_of(member, record(0))
    with caplog.at_level(logging.WARNING, "ottla.spark"):
        batch.settle(AcknowledgeType.ACCEPT)
    assert "ACCEPT: no answer within 60000 ms; the records may be delivered again" in caplog.text


def test_a_member_that_is_closed_cannot_accept() -> None:
    member = Member(*[IllegalState("the share consumer is closed")] * 1000)
    with pytest.raises(IllegalState, match="is closed"):
        batch_of(member, record(0)).settle(AcknowledgeType.ACCEPT)


def test_offsets_in_a_row_are_one_range() -> None:
    ranges = ranges_of([record(3), record(4), record(7), record(0, partition=1), record(8)])
    assert ranges == {TopicPartition("t", 0): [(3, 4), (7, 8)], TopicPartition("t", 1): [(0, 0)]}
