"""Limit of the work that parsing a schema and one comparison of schemas may take.

The rules compare pairs: two unions of 10,000 branches have 100 million, nested combinations of JSON Schemas exponentially many.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeVar

from ottla.schemas.registry import UnsupportedSchema

T = TypeVar("T")

_MOST_STEPS: Final = 200_000


class TooComplex(UnsupportedSchema):
    """A comparison of schemas takes more work than one check may."""


class Allowance:
    """Limit of the budgets of one function, below their own.

    is_exceeded  whether one has ended with the limit: the function may have swallowed the error
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.is_exceeded = False

    def run(self, function: Callable[[], T]) -> T:
        """Call a function whose budgets have this limit."""
        before = _allowance.set(self)
        try:
            return function()
        finally:
            _allowance.reset(before)


_allowance: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


class Budget:
    """Steps that are left, each about the comparison of one pair."""

    def __init__(self, steps: int = _MOST_STEPS) -> None:
        self._allowance = _allowance.get()
        self._left = steps if self._allowance is None else min(steps, self._allowance.steps)

    def spend(self, steps: int = 1) -> None:
        """Take steps. Raises TooComplex if too few are left."""
        self._left -= steps
        if self._left < 0:
            if self._allowance is not None:
                self._allowance.is_exceeded = True
            raise TooComplex("the schemas are too large or too deeply combined to compare them")
