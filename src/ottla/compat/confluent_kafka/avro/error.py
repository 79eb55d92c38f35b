"""Error of the client of a schema registry."""


class ClientError(Exception):
    """A schema cannot be parsed, or the registry refused a request."""

    def __init__(self, message: str, http_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.http_code = http_code

    def __repr__(self) -> str:
        return f"ClientError(error={self.message})"
