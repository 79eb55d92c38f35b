"""Order of a list by one of its columns, as the links of its header choose it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.console.visit import Visit

R = TypeVar("R")


class Ordering(NamedTuple):
    """Column of a list, and whether the highest value comes first."""

    column: str
    is_descending: bool

    def arguments(self) -> dict[str, str]:
        """Return the arguments of a URL."""
        return {"sort": self.column, "desc": "1" if self.is_descending else ""}

    def link_arguments(self, column: str) -> dict[str, str]:
        """Return the arguments for the header of a column: it sorts by the column, and reverses the order if that is so."""
        is_descending = not self.is_descending if column == self.column else False
        return Ordering(column, is_descending).arguments()

    def aria(self, column: str) -> str:
        """Return the value of aria-sort of a header."""
        if column != self.column:
            return "none"
        return "descending" if self.is_descending else "ascending"

    def sort(self, rows: Sequence[R], keys: Mapping[str, Callable[[R], Any]]) -> list[R]:
        """Return rows in this order; those whose value is None come last."""
        key = keys[self.column]
        known = [row for row in rows if key(row) is not None]
        return sorted(known, key=key, reverse=self.is_descending) + [row for row in rows if key(row) is None]


def ordering(visit: Visit, columns: Mapping[str, Any]) -> Ordering:
    """Return the order that a request asks for, by the first column for one that does not exist."""
    column = visit.text("sort")
    if column not in columns:
        return Ordering(next(iter(columns)), False)
    return Ordering(column, visit.text("desc") == "1")
