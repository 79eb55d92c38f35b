"""Tells the user of a program that ends while records of a producer have no acknowledgement: they may be lost."""

import atexit
import sys
import weakref
from typing import Protocol


class _Watched(Protocol):
    """A producer: its length is the number of records without an outcome."""

    def __len__(self) -> int: ...


_producers: "weakref.WeakSet[_Watched]" = weakref.WeakSet()


def watch(producer: _Watched) -> None:
    """Tell about the records of a producer at the end of the program, unless it is closed by then."""
    _producers.add(producer)


def report() -> None:
    """Write a line to stderr for each producer with records that have no acknowledgement."""
    for producer in list(_producers):
        count = len(producer)
        if count and sys.stderr is not None:
            records = "1 record that has" if count == 1 else f"{count} records that have"
            sys.stderr.write(
                f"ottla: the program ends with {records} no acknowledgement and may be lost: "
                "call flush() or close() of the producer before\n"
            )


atexit.register(report)
