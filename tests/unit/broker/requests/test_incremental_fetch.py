"""An incremental fetch looks at what is new: its cost does not depend on the number of idle partitions (KIP-227)."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.queues import unexpected
from tests.unit.broker.test_log_directories import Machine

from ottla.broker.requests.fetch_attempt import FetchAttempt, _Reader
from ottla.protocol.errors import NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.tasks.deferred import Deferred

pytestmark = pytest.mark.replaces_code

PARTITIONS = 5
BATCH = build([Record(0, 1, None, b"x")])


class Fetcher:
    """A client with a fetch session of all partitions of topic t, each at its end.

    looked_at  indexes of the partitions that the broker has looked at
    """

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._machine = machine
        self.offsets = [0] * PARTITIONS
        self.looked_at: list[int] = []
        read = FetchAttempt._read

        def counted(attempt: FetchAttempt, requested: Any, max_bytes: int, *, whole_first: bool) -> Any:
            self.looked_at.append(requested.index)
            return read(attempt, requested, max_bytes, whole_first=whole_first)

        monkeypatch.setattr(FetchAttempt, "_read", counted)
        self._epoch, self._session = 0, 0
        response = self.fetch(*range(PARTITIONS))
        self._session = response.session_id

    def begin(
        self, *indexes: int, max_wait_ms: int = 0, forgotten: tuple[int, ...] = ()
    ) -> FetchResponse | Deferred[FetchResponse]:
        """Fetch, naming these partitions."""
        self.looked_at.clear()
        partitions = [
            FetchPartition(partition=index, fetch_offset=self.offsets[index], partition_max_bytes=1 << 20)
            for index in indexes
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_id=self._session,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic="t", partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forgotten))] if forgotten else [],
        )
        self._epoch += 1
        answer: FetchResponse | Deferred[FetchResponse] = self._machine.serve(request, 11)
        return answer

    def fetch(self, *indexes: int, forgotten: tuple[int, ...] = ()) -> FetchResponse:
        """Fetch what is there now."""
        response = self.begin(*indexes, forgotten=forgotten)
        assert isinstance(response, FetchResponse)
        return response

    def append(self, index: int) -> None:
        partition = self._machine.partition("t", index)
        assert partition.append(BATCH, 0, len(BATCH), 1).error_code == NONE
        self._machine.settle()

    def watchers(self, index: int) -> int:
        return len(self._machine.partition("t", index).watchers.marks)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Machine(tmp_path) as machine:
        machine.create("t", PARTITIONS)
        yield machine


@pytest.fixture
def fetcher(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Fetcher:
    return Fetcher(machine, monkeypatch)


def rows(response: FetchResponse) -> dict[int, int]:
    """Error codes of the partitions in a response, by index."""
    return {row.partition_index: row.error_code for topic in response.responses for row in topic.partitions}


def test_idle_partitions_are_not_looked_at(fetcher: Fetcher) -> None:
    assert fetcher.looked_at == list(range(PARTITIONS))
    assert rows(fetcher.fetch()) == {}
    assert fetcher.looked_at == []


def test_a_partition_with_new_records_is_returned_until_its_records_are_fetched(fetcher: Fetcher) -> None:
    fetcher.append(3)
    assert rows(fetcher.fetch()) == {3: NONE}
    assert rows(fetcher.fetch()) == {3: NONE}  # the client did not move on
    fetcher.offsets[3] = 1
    assert rows(fetcher.fetch(3)) == {}
    assert rows(fetcher.fetch()) == {}
    assert fetcher.looked_at == []


def test_a_waiting_fetch_looks_at_the_partition_that_has_grown(fetcher: Fetcher) -> None:
    answer = fetcher.begin(max_wait_ms=10_000)
    assert isinstance(answer, Deferred)
    responses: list[FetchResponse] = []
    answer.then(responses.append, unexpected)
    fetcher.append(2)
    assert [rows(response) for response in responses] == [{2: NONE}]
    assert fetcher.looked_at == [2]


def test_a_new_log_start_offset_is_returned(fetcher: Fetcher, machine: Machine) -> None:
    fetcher.append(1)
    fetcher.fetch()
    fetcher.offsets[1] = 1
    assert rows(fetcher.fetch(1)) == {}
    partition = machine.partition("t", 1)
    partition.log.delete_records(1)
    partition.wake()
    assert rows(fetcher.fetch()) == {1: NONE}
    assert rows(fetcher.fetch()) == {}


def test_a_deleted_partition_is_reported_in_each_response(fetcher: Fetcher, machine: Machine) -> None:
    machine.delete("t")
    for _ in range(2):
        response = fetcher.fetch()
        assert rows(response) == dict.fromkeys(range(PARTITIONS), UNKNOWN_TOPIC_OR_PARTITION)


def test_partitions_have_one_watcher_for_each_session_until_they_are_given_up(fetcher: Fetcher) -> None:
    for _ in range(3):
        fetcher.fetch()
    assert [fetcher.watchers(index) for index in range(PARTITIONS)] == [1] * PARTITIONS
    fetcher.fetch(forgotten=(0, 1))
    assert [fetcher.watchers(index) for index in range(PARTITIONS)] == [0, 0, 1, 1, 1]


def test_a_session_that_ends_leaves_no_watchers(fetcher: Fetcher) -> None:
    fetcher._epoch = -1
    fetcher.fetch()
    assert [fetcher.watchers(index) for index in range(PARTITIONS)] == [0] * PARTITIONS


@pytest.mark.parametrize(("replica_id", "waits"), [(-1, True), (2, False)])
def test_a_follower_is_answered_at_once_when_it_names_an_unknown_partition(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, replica_id: int, waits: bool
) -> None:
    """Its position is recorded only when it names the partition again, perhaps a moment after the partition was created."""

    def find(_: _Reader, requested: Any, __: Any) -> Any:
        return machine.partition("t", 0) if requested.index == 0 else UNKNOWN_TOPIC_OR_PARTITION

    monkeypatch.setattr(_Reader, "find", find)
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in (0, 1)]
    request = FetchRequest(
        replica_id=replica_id, max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t", partitions=partitions)]
    )
    answer = machine.serve(request, 11)
    if waits:
        assert isinstance(answer, Deferred)
        machine.loop.run_until_complete(asyncio.sleep(0))
        assert not answer.done
    else:
        assert isinstance(answer, FetchResponse)
        assert rows(answer) == {0: NONE, 1: UNKNOWN_TOPIC_OR_PARTITION}
