"""Appends of a Produce request that are not answered at once: batches that are still being validated, because they are large or
have schemas that must be looked up, and those that are not committed yet.
"""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.coordination.verification import VerificationGuard
from ottla.broker.requests.delayed import DelayedCommit, Uncommitted
from ottla.log.log import AppendResult, StorageError, Unfinished
from ottla.protocol.errors import (
    CORRUPT_MESSAGE,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    RECORD_LIST_TOO_LARGE,
    REQUEST_TIMED_OUT,
    name_of,
)
from ottla.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse
from ottla.protocol.wire import PeerError
from ottla.replication.partition import Partition
from ottla.tasks.deferred import Answer, Deferred, after

_logger = logging.getLogger("ottla.broker")
_MOST_ATTEMPTS: Final = 10
_MOST_ERRORS: Final = 10_000
"""Number of rejected records of a batch that a response names: 100,000 would hold up other requests for 0.3 s."""
_WITHOUT_LOG_START: Final = frozenset((CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE))
"""Errors of a batch for which Kafka returns no log start offset: of some exceptions of the append it returns only the code."""


def row_of(partition: Partition, appended: AppendResult) -> PartitionProduceResponse:
    """Return the row of a completed append."""
    if appended.error_code == NONE:
        return PartitionProduceResponse(
            index=partition.index,
            error_code=NONE,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.append_time,
            log_start_offset=partition.log.start_offset,
        )
    has_log_start = appended.is_whole and appended.error_code not in _WITHOUT_LOG_START
    return PartitionProduceResponse(
        index=partition.index,
        error_code=appended.error_code,
        base_offset=-1,
        log_start_offset=partition.log.start_offset if has_log_start else -1,
        error_message=appended.error_message,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in (appended.record_errors or ())[:_MOST_ERRORS]
        ],
    )


def immediate_response(response: ProduceResponse, acks: int, first_error: int) -> ProduceResponse | None:
    """Return the response of a request that waits for nothing; with acks=0 None, or a PeerError."""
    if acks != 0:
        return response
    if first_error != NONE:
        raise PeerError(f"Produce with acks=0 failed with {name_of(first_error)}")
    return None


class PendingAppend(NamedTuple):
    """Append of a batch, as it began.

    leader_epoch  that in which the batch is stamped
    answer        its row of the response
    producer      id and epoch of the producer of a transactional batch
    guard         state of its transaction
    """

    partition: Partition
    leader_epoch: int
    unfinished: Unfinished
    answer: PartitionProduceResponse
    producer: tuple[int, int] | None
    guard: VerificationGuard | None

    def refusal(self, broker: Broker, acks: int) -> int:
        """Return why the batch must not be appended any more, NONE if it may be."""
        partition = self.partition
        leader = broker.replicas.leader(partition.topic, partition.index)
        if isinstance(leader, int):
            return leader
        if leader is not partition or partition.leader_epoch != self.leader_epoch:  # the batch has the old epoch
            return NOT_LEADER_OR_FOLLOWER
        if self.producer is not None and self.guard != VerificationGuard.of(partition, self.producer[0]):
            # It would be in a transaction that nobody ends. The client sends it again, and it is verified again.
            return NOT_ENOUGH_REPLICAS
        return NOT_ENOUGH_REPLICAS if acks == -1 and partition.lacks_replicas else NONE


class PendingAppends:
    """Appends of one request that wait."""

    __slots__ = ("_acks", "_attempts", "_broker", "_timeout_ms", "_uncommitted", "_unfinished", "_unknown")

    def __init__(self, broker: Broker, acks: int, timeout_ms: int) -> None:
        self._broker = broker
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._attempts = 0
        self._unfinished: list[PendingAppend] = []
        self._unknown: list[PendingAppend] = []
        """Those with schemas that have to be looked up."""
        self._uncommitted: list[Uncommitted] = []

    def add(
        self,
        partition: Partition,
        unfinished: Unfinished | None,
        answer: PartitionProduceResponse,
        end_offset: int,
        producer: tuple[int, int] | None,
    ) -> None:
        """Add a pending append; its row is filled in, or corrected, when the append is committed.

        end_offset  offset behind the batch; of a duplicate behind the batch that it repeats, as later ones are not waited for
        producer    of a transactional batch
        """
        if unfinished is None:
            self._wait_for(partition, answer, end_offset)
            return
        guard = None if producer is None else VerificationGuard.of(partition, producer[0])
        self._validate(PendingAppend(partition, partition.leader_epoch, unfinished, answer, producer, guard))

    def _validate(self, append: PendingAppend) -> None:
        """Add an append to those that wait for a schema registry, or for their turn."""
        (self._unknown if append.unfinished.unknown else self._unfinished).append(append)

    def _wait_for(self, partition: Partition, answer: PartitionProduceResponse, end_offset: int) -> None:
        set_result = partial(_set_result, partition, self._acks, answer)
        self._uncommitted.append(Uncommitted(partition, partition.leader_epoch, end_offset, set_result, self._acks))

    def _fill_in(self, answer: PartitionProduceResponse, partition: Partition, appended: AppendResult) -> None:
        row = row_of(partition, appended)
        for declared in row.FIELDS:
            setattr(answer, declared.name, getattr(row, declared.name))
        if answer.error_code == NONE and not partition.has_acknowledged(self._acks, appended.end_offset):
            self._wait_for(partition, answer, appended.end_offset)

    def answer(self, response: ProduceResponse, first_error: int) -> Answer[ProduceResponse] | None:
        """Answer the request once every append is committed; None with acks=0."""
        if self._unknown:
            return after(self._learn(), lambda _: self._respond(response))
        if self._unfinished:
            # One request at a time, because each may take 16 MB and more of memory (a zstd window alone 128 MB).
            return after(self._broker.large_checks.take(self._check), lambda _: self._respond(response))
        if self._acks == 0 or not self._uncommitted:
            return immediate_response(response, self._acks, first_error)
        whole: Deferred[ProduceResponse] = Deferred(self._broker.tasks)
        delayed = DelayedCommit(lambda: whole.complete(response), self._broker.expirations.produce)
        delayed.begin(self._uncommitted, self._broker.timeouts, self._timeout_ms)
        return whole

    def _learn(self) -> Answer[None]:
        """Look unknown schemas up, and begin these appends again."""
        appends, self._unknown = self._unknown, []
        self._attempts += 1
        unknown = [
            (one.rules, one.unknown) for one in (append.unfinished for append in appends) if one.rules is not None
        ]
        learned = self._broker.schema_validation.learn(unknown)
        return after(learned, lambda _: self._begin_again(appends))

    def _begin_again(self, appends: list[PendingAppend]) -> None:
        for append in appends:
            code = append.refusal(self._broker, self._acks)
            if code == NONE and self._attempts > _MOST_ATTEMPTS:
                code = REQUEST_TIMED_OUT  # what was learned is outdated again and again
            if code != NONE:
                append.answer.error_code, append.answer.base_offset = code, -1
                continue
            try:
                self._continue(append)
            except StorageError as error:
                self._fail(append, error)

    def _continue(self, append: PendingAppend) -> None:
        """Append a batch that is valid as far as it was checked."""
        appended = append.unfinished.append()
        if appended.unfinished is None:
            self._fill_in(append.answer, append.partition, appended)
        else:
            self._validate(append._replace(unfinished=appended.unfinished))

    def _fail(self, append: PendingAppend, error: StorageError) -> None:
        _logger.error("%s", error)
        append.answer.error_code, append.answer.base_offset = KAFKA_STORAGE_ERROR, -1

    def _check(self) -> Answer[None]:
        return self._broker.tasks.run_pieces(self._finish(), "the check of a large batch")

    def _finish(self) -> Iterator[None]:
        while self._unfinished:  # a message set comes back: it is rebuilt, then the batch is checked
            append = self._unfinished.pop(0)
            try:
                yield from append.unfinished.steps
                code = append.refusal(self._broker, self._acks)
                if code != NONE:
                    append.answer.error_code, append.answer.base_offset = code, -1
                else:
                    self._continue(append)
            except StorageError as error:
                self._fail(append, error)

    def _respond(self, response: ProduceResponse) -> Answer[Any]:
        answers = [answer for topic in response.responses for answer in topic.partition_responses]
        first_error = next((answer.error_code for answer in answers if answer.error_code != NONE), NONE)
        try:
            return self.answer(response, first_error)
        except PeerError as error:
            return error


def _set_result(partition: Partition, acks: int, answer: PartitionProduceResponse, error_code: int) -> None:
    if error_code == NONE and acks == -1 and partition.lost_replicas:
        error_code = NOT_ENOUGH_REPLICAS_AFTER_APPEND
    answer.error_code = error_code  # the batch keeps its offset: it is in the log
