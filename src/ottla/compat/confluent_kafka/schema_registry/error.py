"""Errors of a schema registry."""

from typing import Final


class SchemaRegistryError(Exception):
    """Response of a registry with an error; -1 without a status or code."""

    UNKNOWN: Final = -1

    def __init__(self, http_status_code: int, error_code: int, error_message: str) -> None:
        super().__init__(http_status_code, error_code, error_message)
        self.http_status_code = http_status_code
        self.error_code = error_code
        self.error_message = error_message

    def __str__(self) -> str:
        return f"{self.error_message} (HTTP status code {self.http_status_code}, SR code {self.error_code})"

    __repr__ = __str__


class OAuthTokenError(Exception):
    """A token cannot be fetched."""

    def __init__(self, message: str, status_code: int | None = None, response_text: str | None = None) -> None:
        super().__init__(f"{message} (HTTP {status_code}): {response_text}")
        self.message = message
        self.status_code = status_code
        self.response_text = response_text
