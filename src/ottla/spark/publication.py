"""Decisions of the exactly-once sink: whether a part of a batch is published, and the action of its task. `exactly_once.py`
has the effects.

A task of batch N writes its rows in a transaction `ottla.<sink>.<task>` and leaves it open. With the rows goes a marker: an
offset that the group `ottla.<sink>` commits for partition <task> of an empty topic, whose metadata says which batch this is,
how many rows it has, and their digest. Rows and marker are seen together or not at all. When all tasks are done the driver
writes a decision, which lists the transactions of the batch, and ends them all.

    task 0   rows, marker N --.                         .-> committed
    task 1   rows, marker N ---+--> decision N: 0, 1 --+--> committed
                                    (driver)

A batch that is run again finds one of these:

    decision N, and a marker N for every task of it    published: nothing is written, whatever the plan says this time
    marker N of this task                              this part is published, others are not: the rows must be the same
    a decision or a marker after N                     this run is behind: its checkpoint is an older one
    a decision that lists this task, but no marker     the marker expired: whether the part was published is unknown
    neither                                            not published

A driver knows the sink's name from its tasks, or from the option sinkId; so of a batch without tasks there is a decision only
if the name was given.
"""

import json
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class PublicationError(RuntimeError):
    """An exactly-once sink cannot go on without risking rows twice or not at all."""


class TaskMarker(NamedTuple):
    """Last batch that a task published; batch -1: none yet. The digest is that of `records/digest.py`, summed over the task."""

    batch: int
    rows: int = 0
    digest: int = 0

    def text(self) -> str:
        """As metadata of a committed offset."""
        return json.dumps(self._asdict(), separators=(",", ":"))


def read_marker(text: str) -> TaskMarker:
    """The inverse of `TaskMarker.text`. Raises PublicationError."""
    try:
        fields = json.loads(text)
        return TaskMarker(int(fields["batch"]), int(fields["rows"]), int(fields["digest"]))
    except (ValueError, KeyError, TypeError):
        raise PublicationError(
            f"a marker of the sink cannot be read: {text!r}. Give this query a sinkId of its own"
        ) from None


class TaskTransaction(NamedTuple):
    """A task of a batch and its transaction; producer id -1 when the part had been published before."""

    task: int
    producer_id: int
    epoch: int


class Decision(NamedTuple):
    """All parts of a batch are written: they are to be published."""

    batch: int
    transactions: list[TaskTransaction]

    def text(self) -> str:
        """As the value of a record."""
        return json.dumps({"batch": self.batch, "parts": self.transactions}, separators=(",", ":"))

    @property
    def tasks(self) -> set[int]:
        """The numbers of its tasks."""
        return {transaction.task for transaction in self.transactions}


def read_decision(text: bytes) -> Decision:
    """The inverse of `Decision.text`. Raises PublicationError."""
    try:
        fields = json.loads(text)
        return Decision(int(fields["batch"]), [TaskTransaction(*map(int, row)) for row in fields["parts"]])
    except (ValueError, KeyError, TypeError):
        raise PublicationError(f"a decision of the sink cannot be read: {text!r}") from None


class TaskAction(Enum):
    """Action of a task."""

    WRITE = "write the rows"
    COMPARE = "the part is published: see that the rows are the same"
    SKIP = "the batch is published"


def check_batch(sink: str, batch: int, decision: Decision | None, *, unknown: bool) -> None:
    """Check that a batch may follow the last decision of a sink.

    unknown  a sink without a decision should have one: it was given a name, so that empty batches are decided too, or it has
             markers. Otherwise the batches before this one had no tasks.

    Raises PublicationError.
    """
    if decision is None and batch > 0 and unknown:
        raise PublicationError(
            f"sink {sink} has no record of the batches before {batch}: its query began without exactlyOnce, under another "
            "sinkId, or the topic of decisions was deleted. Begin with a new checkpoint and a new sinkId"
        )
    if decision is not None and decision.batch > batch:
        raise PublicationError(_outdated_run(sink, batch, decision.batch))


def task_action(
    sink: str, batch: int, task: int, decision: Decision | None, markers: Mapping[int, TaskMarker]
) -> TaskAction:
    """Return the action of a task.

    Call it once `check_batch` has passed, the transactions of a decision about this batch are ended, and those of older
    attempts fenced.

    markers  by task, those that there are; of all tasks of a decision about this batch

    Raises PublicationError.
    """
    marker = markers.get(task)
    if marker is not None and marker.batch > batch:
        raise PublicationError(_outdated_run(sink, batch, marker.batch))
    if decision is not None and decision.batch == batch:
        if all(number in markers and markers[number].batch == batch for number in decision.tasks):
            return TaskAction.SKIP
        if marker is None and task in decision.tasks:
            raise PublicationError(
                f"sink {sink}, batch {batch}, task {task}: the part was to be published, and its marker is gone "
                "(offsets.retention.minutes, or its topic was deleted), so it is unknown whether it was. Look at the "
                "topic, then begin with a new checkpoint and a new sinkId"
            )
    return TaskAction.COMPARE if marker is not None and marker.batch == batch else TaskAction.WRITE


def _outdated_run(sink: str, batch: int, published: int) -> str:
    return (
        f"sink {sink} has published batch {published}, and this run is at batch {batch}: its checkpoint is older than what "
        "was published, or another query uses the same sinkId"
    )


def check_same(sink: str, batch: int, task: int, published: TaskMarker, now: TaskMarker) -> None:
    """A part that is published and one that was computed again must be the same. Raises PublicationError."""
    if (published.rows, published.digest) != (now.rows, now.digest):
        raise PublicationError(
            f"sink {sink}, batch {batch}, task {task}: {published.rows} rows are published, and the batch run again has "
            f"{now.rows}{' others' if published.rows == now.rows else ''}: the plan is not deterministic, or its input has "
            "changed. What is published stays; begin with a new checkpoint and a new sinkId"
        )
