"""Errors of requests about metadata."""

from typing import Final, NamedTuple

from ottla.protocol.errors import NONE


class Refused(Exception):
    """Failed request: the error code, and Kafka's message, or None if Kafka sends none."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ChangeResult(NamedTuple):
    """Outcome of a change of the metadata: NONE, or an error code and its message."""

    error_code: int
    error_message: str | None


CHANGED: Final = ChangeResult(NONE, None)
