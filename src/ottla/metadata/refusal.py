"""Errors of requests about metadata."""

from typing import Final, NamedTuple

from ottla.protocol.errors import NONE, POLICY_VIOLATION

MOST_RECORDS: Final = 10_000
"""Records that one request may add to the metadata (Kafka's QuorumController.MAX_RECORDS_PER_USER_OP)."""
TOO_MANY_RECORDS: Final = "Unable to perform excessively large batch operation."


class Refused(Exception):
    """Failed request: the error code, and Kafka's message, or None if Kafka sends none."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class TooLarge(Refused):
    """Refusal of a whole request: it would change more than Kafka changes at once."""


def check_records(records: int) -> None:
    """Raise TooLarge if one request would add more records to the metadata than it may."""
    if records > MOST_RECORDS:
        raise TooLarge(POLICY_VIOLATION, TOO_MANY_RECORDS)


class ChangeResult(NamedTuple):
    """Outcome of a change of the metadata: NONE, or an error code and its message."""

    error_code: int
    error_message: str | None


CHANGED: Final = ChangeResult(NONE, None)
