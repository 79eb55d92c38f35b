"""Broker with a bug, to see that the checks of histories find it: `scripts/histories --module tests.histories.planted`.

The environment variable OTTLA_TEST_BUG names the bug:

    acknowledge early   a write with acks=all is acknowledged after the leader's append: "lost" after a kill, or records of
                        another producer at an acknowledged offset
    commit all          a marker that should abort a transaction commits it: "G1a"
    drop newest         compaction removes the newest record of each key: "lost"
    forget accepted     share acknowledgements are confirmed, and not written: "after its end" when the leader changes
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

from ottla.broker.share_partitions.partitions import SharePartitions
from ottla.cli.main import main
from ottla.coordinators.share.state import StateOutcome, WriteState
from ottla.log.compaction import Pass
from ottla.log.log import Log
from ottla.log.segment import Segment
from ottla.replication.partition import Partition


def acknowledge_early() -> None:
    """Take what is appended for committed."""
    original = Partition.has_acknowledged

    def has_acknowledged(self: Partition, acks: int, offset: int | None = None) -> bool:
        return original(self, 1 if acks == -1 else acks, offset)

    Partition.has_acknowledged = has_acknowledged  # type: ignore[method-assign]


def commit_all() -> None:
    """Append markers of commits only."""
    original = Log.append_marker

    def append_marker(self: Log, *arguments: Any, **flags: Any) -> Any:
        return original(self, *arguments, **{**flags, "commit": True})

    Log.append_marker = append_marker  # type: ignore[method-assign]


def drop_newest() -> None:
    """Take all records of a key for superseded."""
    original = Pass._groups

    def groups(self: Pass) -> Iterator[list[Segment]]:
        self._newest.blocks.clear()
        return original(self)

    Pass._groups = groups  # type: ignore[method-assign]


def forget_accepted() -> None:
    """Write no state of share groups."""

    def write(self: SharePartitions, request: WriteState) -> StateOutcome:
        return StateOutcome()

    SharePartitions.write = write  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    "acknowledge early": acknowledge_early,
    "commit all": commit_all,
    "drop newest": drop_newest,
    "forget accepted": forget_accepted,
}

if __name__ == "__main__":
    BUGS[os.environ["OTTLA_TEST_BUG"]]()
    main()
