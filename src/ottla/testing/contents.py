"""Contents of a broker or cluster that a test reads and waits for: records of topics, groups, committed offsets."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from typing import Final, NamedTuple, TypeVar

from ottla.client.errors import UnknownTopic
from ottla.client.topics import TopicPartition
from ottla.records.record import Record
from ottla.testing.calls import checks_calls, existing, refuse_running_loop

_POLL_INTERVAL_S: Final = 0.005
_ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")
EMPTY: Final = "Empty"
STABLE: Final = "Stable"
"""States of groups with any protocol, in the words of ListGroups."""
R = TypeVar("R")
Attempts = Generator[None, None, R]
"""Steps of a call that waits: it yields whenever the caller should sleep, and returns the result."""


class GroupStatus(NamedTuple):
    """State of a group, in the words of ListGroups ("Stable"), and its number of members."""

    state: str
    members: int


@checks_calls
class Contents(ABC):
    """Records and groups of a broker or cluster."""

    @abstractmethod
    def topics(self) -> list[str]:
        """Return the names of all topics except internal ones."""

    @abstractmethod
    def _read(self, topic: str, index: int | None, *, committed: bool) -> list[Record] | None:
        """Return the records of a topic or one partition of it; None if the topic does not exist."""

    @abstractmethod
    def _group_statuses(self) -> dict[str, GroupStatus]:
        """Return the groups that have members or offsets."""

    @abstractmethod
    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group by topic-partition; empty for an unknown group."""

    def records(
        self,
        topic: str,
        *,
        partition: int | None = None,
        isolation_level: str = "read_uncommitted",
        at_least: int = 0,
        timeout: float = 10.0,
        wait_for_topic: bool = False,
    ) -> list[Record]:
        """Return the records of a topic, by partition and offset, bypassing all faults.

        isolation_level  "read_committed" excludes records of open and aborted transactions
        at_least         wait for this number of records, up to `timeout` seconds
        wait_for_topic   wait for the topic as well, which an application creates later

        Raises UnknownTopic, TimeoutError, and RuntimeError if it may wait on a running event loop: use `records_async` there.
        """
        if at_least or wait_for_topic:
            refuse_running_loop("records(at_least=...)", "records_async(...)")
        attempts = self._attempt_records(topic, partition, isolation_level, at_least, timeout, wait_for_topic)
        return _block(attempts)

    async def records_async(
        self,
        topic: str,
        *,
        partition: int | None = None,
        isolation_level: str = "read_uncommitted",
        at_least: int = 0,
        timeout: float = 10.0,
        wait_for_topic: bool = False,
    ) -> list[Record]:
        """Return records as `records` does; waits without blocking the event loop."""
        attempts = self._attempt_records(topic, partition, isolation_level, at_least, timeout, wait_for_topic)
        return await _wait(attempts)

    def _attempt_records(
        self,
        topic: str,
        partition: int | None,
        isolation_level: str,
        at_least: int,
        timeout: float,
        wait_for_topic: bool,
    ) -> Attempts[list[Record]]:
        if isolation_level not in _ISOLATION_LEVELS:
            raise ValueError(f"isolation_level must be {' or '.join(_ISOLATION_LEVELS)}, not {isolation_level}")
        if at_least < 0:
            raise ValueError(f"at_least must not be negative, but is {at_least}")
        deadline = time.monotonic() + timeout
        while True:
            records = self._read(topic, partition, committed=isolation_level == "read_committed")
            if records is None and not wait_for_topic:
                raise unknown_topic(topic, self.topics(), is_awaited=at_least > 0)
            if records is not None and len(records) >= at_least:
                return records
            if time.monotonic() >= deadline:
                if records is None:
                    raise TimeoutError(f"{unknown_topic(topic, self.topics())} after {timeout} s")
                raise TimeoutError(f"{topic} has {len(records)} of {at_least} records after {timeout} s")
            yield

    def groups(self) -> list[str]:
        """Return the ids of all groups: those with members, and those with committed offsets."""
        return sorted(self._group_statuses())

    def wait_for_group(self, group: str, members: int = 1, *, timeout: float = 10.0) -> None:
        """Wait until a group has exactly this number of members, and all of them their partitions.

        timeout  seconds

        Raises TimeoutError, and RuntimeError on a running event loop: `wait_for_group_async` is for that.
        """
        refuse_running_loop("wait_for_group", "wait_for_group_async(...)")
        _block(self._attempt_group(group, members, timeout))

    async def wait_for_group_async(self, group: str, members: int = 1, *, timeout: float = 10.0) -> None:
        """Wait as `wait_for_group` does, without blocking the event loop."""
        await _wait(self._attempt_group(group, members, timeout))

    def _attempt_group(self, group: str, members: int, timeout: float) -> Attempts[None]:
        if members < 0:
            raise ValueError(f"members must not be negative, but is {members}")
        deadline = time.monotonic() + timeout
        while True:
            statuses = self._group_statuses()
            status = statuses.get(group)
            if status is not None and status == (STABLE if members else EMPTY, members):
                return
            if time.monotonic() >= deadline:
                if status is None:
                    raise TimeoutError(
                        f"group {group} does not exist after {timeout} s; existing groups: {existing(statuses)}"
                    )
                raise TimeoutError(
                    f"group {group} is {status.state} with {status.members} of {members} members after {timeout} s"
                )
            yield


def _block(attempts: Attempts[R]) -> R:
    while True:
        try:
            next(attempts)
        except StopIteration as end:
            result: R = end.value
            return result
        time.sleep(_POLL_INTERVAL_S)


async def _wait(attempts: Attempts[R]) -> R:
    while True:
        try:
            next(attempts)
        except StopIteration as end:
            result: R = end.value
            return result
        await asyncio.sleep(_POLL_INTERVAL_S)


def unknown_topic(topic: str, known: Iterable[str], *, is_awaited: bool = False) -> UnknownTopic:
    """Return the error for a topic that does not exist, with the topics that do."""
    remedy = "; wait_for_topic=True waits for one that is created later" if is_awaited else ""
    return UnknownTopic(f"topic {topic} does not exist; existing topics: {existing(known)}{remedy}")
