"""Decisions of the exactly-once sink: is a task's share of a batch published, and what must the task do. `exactly_once.py`
has the effects.

A task of batch N writes its rows in a transaction `ottla.<sink>.<task>` and leaves it open. The transaction includes a marker:
a committed offset of the group `ottla.<sink>` for partition <task> of an empty topic; its metadata has the batch number, the
number of rows and their digest. Rows and marker become visible together or not at all. When all tasks are done, the driver
writes a decision that lists the transactions of the batch, and commits them all.

    task 0   rows, marker N --.                         .-> committed
    task 1   rows, marker N ---+--> decision N: 0, 1 --+--> committed
                                    (driver)

States of a batch that is run again:

    decision N, and a marker N for every task of it    published: write nothing, even if the plan has changed
    marker N of this task                              this task's rows are published, others are not: rows must be the same
    a decision or a marker after N                     this run has an outdated checkpoint
    a decision that lists this task, but no marker     the marker expired: it is unknown if the rows were published
    neither                                            not published

The driver learns the sink's id from its tasks, or from the option sinkId; so a batch without tasks gets a decision only if
sinkId is set.
"""

import json
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class PublicationError(RuntimeError):
    """The exactly-once sink cannot continue without a risk of duplicate or lost rows."""


class TaskMarker(NamedTuple):
    """Last batch published by a task, -1 before the first; the digest is the sum of `records/digest.py` over its rows."""

    batch: int
    rows: int = 0
    digest: int = 0

    def text(self) -> str:
        """Return the metadata of the committed offset."""
        return json.dumps(self._asdict(), separators=(",", ":"))


def read_marker(text: str) -> TaskMarker:
    """Parse the result of `TaskMarker.text`. Raises PublicationError."""
    try:
        fields = json.loads(text)
        return TaskMarker(int(fields["batch"]), int(fields["rows"]), int(fields["digest"]))
    except (ValueError, KeyError, TypeError):
        raise PublicationError(f"malformed marker of the sink: {text!r}. Give this query its own sinkId") from None


class TaskTransaction(NamedTuple):
    """Transaction of a task of a batch; producer id -1 if its rows were published before."""

    task: int
    producer_id: int
    epoch: int


class Decision(NamedTuple):
    """Decision to publish a batch: all of its tasks have written their rows."""

    batch: int
    transactions: list[TaskTransaction]

    def text(self) -> str:
        """Return the value of its record."""
        return json.dumps({"batch": self.batch, "parts": self.transactions}, separators=(",", ":"))

    @property
    def tasks(self) -> set[int]:
        """Numbers of the tasks."""
        return {transaction.task for transaction in self.transactions}


def read_decision(text: bytes) -> Decision:
    """Parse the result of `Decision.text`. Raises PublicationError."""
    try:
        fields = json.loads(text)
        return Decision(int(fields["batch"]), [TaskTransaction(*map(int, row)) for row in fields["parts"]])
    except (ValueError, KeyError, TypeError):
        raise PublicationError(
            f"malformed decision of the sink: {text!r}. Begin with a new checkpoint and a new sinkId"
        ) from None


class TaskAction(Enum):
    """Action of a task."""

    WRITE = "write the rows"
    COMPARE = "this task's rows are published: check that they are the same"
    SKIP = "the batch is published"


def check_batch(sink: str, batch: int, decision: Decision | None, *, unknown: bool) -> None:
    """Check that a batch may follow the last decision of a sink.

    unknown  the sink must have had a decision, because sinkId is set (then empty batches have decisions too) or because it
             has markers; otherwise the earlier batches may have had no tasks

    Raises PublicationError.
    """
    if decision is None and batch > 0 and unknown:
        raise PublicationError(
            f"sink {sink} has no record of the batches before {batch}: the query began without exactlyOnce or with another "
            "sinkId, or the topic of decisions was deleted. Begin with a new checkpoint and a new sinkId"
        )
    if decision is not None and decision.batch > batch:
        raise PublicationError(_outdated_message(sink, batch, decision.batch))


def task_action(
    sink: str, batch: int, task: int, decision: Decision | None, markers: Mapping[int, TaskMarker]
) -> TaskAction:
    """Return the action of a task.

    Precondition: `check_batch` has passed, the transactions of a decision about this batch are ended, and older attempts are
    fenced.

    markers  existing markers by task; those of all tasks if there is a decision about this batch

    Raises PublicationError.
    """
    marker = markers.get(task)
    if marker is not None and marker.batch > batch:
        raise PublicationError(_outdated_message(sink, batch, marker.batch))
    if decision is not None and decision.batch == batch:
        if all(number in markers and markers[number].batch == batch for number in decision.tasks):
            return TaskAction.SKIP
        if marker is None and task in decision.tasks:
            raise PublicationError(
                f"sink {sink}, batch {batch}, task {task}: there is a decision to publish it but its marker is gone "
                "(offsets.retention.minutes, or its topic was deleted), so the rows may or may not be published. Check "
                "the topic, then begin with a new checkpoint and a new sinkId"
            )
    return TaskAction.COMPARE if marker is not None and marker.batch == batch else TaskAction.WRITE


def _outdated_message(sink: str, batch: int, published: int) -> str:
    return (
        f"sink {sink} has published batch {published}, and this run is at batch {batch}: its checkpoint is outdated, or "
        "another query uses the same sinkId"
    )


def check_same(sink: str, batch: int, task: int, published: TaskMarker, now: TaskMarker) -> None:
    """Check that the rows of a task are the same as those published before. Raises PublicationError."""
    if (published.rows, published.digest) != (now.rows, now.digest):
        raise PublicationError(
            f"sink {sink}, batch {batch}, task {task}: {published.rows} rows are published, and the batch run again has "
            f"{now.rows}{' different ones' if published.rows == now.rows else ''}: the plan is not deterministic, or its "
            "input has changed. The published rows stay; begin with a new checkpoint and a new sinkId"
        )
