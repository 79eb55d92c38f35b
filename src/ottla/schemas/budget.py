"""Limit of the work that parsing a schema and one comparison of schemas may take.

The rules compare pairs: two unions of 10,000 branches have 100 million, nested combinations of JSON Schemas exponentially many.
"""

from typing import Final

from ottla.schemas.registry import UnsupportedSchema

_MOST_STEPS: Final = 200_000


class TooComplex(UnsupportedSchema):
    """A comparison of schemas takes more work than one check may."""


class Budget:
    """Steps that are left, each about the comparison of one pair."""

    def __init__(self, steps: int = _MOST_STEPS) -> None:
        self._left = steps

    def spend(self, steps: int = 1) -> None:
        """Take steps. Raises TooComplex if too few are left."""
        self._left -= steps
        if self._left < 0:
            raise TooComplex("the schemas are too large or too deeply combined to compare them")
