"""A request about metadata that cannot be granted."""


class Refused(Exception):
    """The error code, and Kafka's sentence; None where it has none."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
