"""Histories that tests write by hand."""

from typing import Any

from .operations import NEVER, OK, Operation


class HandWritten:
    """History that grows by one operation at a time, each of which begins after the one before has ended."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._now = 0.0

    def add(
        self,
        kind: str,
        request: dict[str, Any],
        result: dict[str, Any] | None = None,
        outcome: str = OK,
        *,
        client: str = "",
        invoked: float | None = None,
        completed: float | None = None,
    ) -> Operation:
        """Add an operation; without a result it has no completion."""
        number = len(self.operations)
        self._now += 10
        begun = self._now if invoked is None else invoked
        ended = begun + 5 if completed is None else completed
        operation = Operation(number, client or f"client {number}", kind, request, begun)
        if result is not None:
            operation.completed, operation.outcome, operation.result = ended, outcome, result
        else:
            operation.completed = NEVER
        self.operations.append(operation)
        return operation
