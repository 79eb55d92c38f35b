"""Errors of a registry: code, HTTP status and text, in the words of Confluent's, which clients and people search for."""

from collections.abc import Iterable
from typing import Final


class Refusal(Exception):
    """Error response to a request.

    code  error code of the body; its first three digits are the HTTP status
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type["Refusal"], tuple[int, str]]:
        """Return what makes it again in another process."""
        return Refusal, (self.code, self.message)

    @property
    def status(self) -> int:
        """HTTP status."""
        return int(str(self.code)[:3])


INVALID_SCHEMA: Final = 42201
INCOMPATIBLE: Final = 409
INVALID_LEVEL: Final = 42203
NOT_PERMITTED: Final = 42205
REFERENCED: Final = 42206
NOT_LEADING: Final = 50004
_LEVELS: Final = "none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive"


def subject_not_found(subject: str) -> Refusal:
    """Return the error for a subject that has no version."""
    return Refusal(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> Refusal:
    """Return the error for a version that a subject lacks."""
    return Refusal(40402, f"Version {version} not found.")


def schema_not_found(number: int | None = None) -> Refusal:
    """Return the error for an id, or for a text that no version of a subject has."""
    return Refusal(40403, "Schema not found" if number is None else f"Schema {number} not found")


def subject_soft_deleted(subject: str) -> Refusal:
    """Return the error for a subject that is deleted a second time."""
    return Refusal(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> Refusal:
    """Return the error for a subject that is to be deleted permanently first."""
    return Refusal(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> Refusal:
    """Return the error for a version that is deleted a second time."""
    return Refusal(
        40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    )


def version_not_soft_deleted(subject: str, version: int) -> Refusal:
    """Return the error for a version that is to be deleted permanently first."""
    return Refusal(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def no_config(subject: str) -> Refusal:
    """Return the error for a subject without a config of its own."""
    return Refusal(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_mode(subject: str) -> Refusal:
    """Return the error for a subject without a mode of its own."""
    return Refusal(40409, f"Subject '{subject}' does not have subject-level mode configured")


def invalid_version(text: str) -> Refusal:
    """Return the error for a version that is no number of one."""
    return Refusal(
        42202,
        f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string"
        ' "latest"',
    )


def invalid_level() -> Refusal:
    """Return the error for an unknown level of compatibility."""
    return Refusal(INVALID_LEVEL, f"Invalid compatibility level. Valid values are {_LEVELS}")


def invalid_policy(known: Iterable[str]) -> Refusal:
    """Return the error for an unknown policy of compatibility."""
    return Refusal(INVALID_LEVEL, f"Invalid compatibility policy. Valid values are {', '.join(known)}")


def invalid_mode() -> Refusal:
    """Return the error for an unknown mode."""
    return Refusal(42204, "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD.")


def invalid_subject(subject: str) -> Refusal:
    """Return the error for a name that no subject can have."""
    return Refusal(42208, f"The specified subject '{subject}' is not a valid.")


def reference_error(subject: str, version: int) -> Refusal:
    """Return the error for the deletion of a version that other schemas refer to."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return Refusal(REFERENCED, f"One or more references exist to the schema {key}.")


def not_leading() -> Refusal:
    """Return the error of a registry that cannot write."""
    return Refusal(NOT_LEADING, "Leader not known.")
