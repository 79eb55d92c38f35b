"""Errors that a page shows: one line with cause and remedy."""

from ottla.client.errors import (
    BrokersUnreachable,
    KafkaError,
    NotAuthenticated,
    NotAuthorized,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedVersion,
)


class Problem(Exception):
    """Error of a request, shown as one line.

    status  HTTP status
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def problem_of(error: KafkaError, servers: str) -> Problem:
    """Return the problem of an error of the cluster, with a remedy where the message has none."""
    text = str(error).rstrip(".") or error.name
    if isinstance(error, UnknownTopic):
        return Problem(f"{text}. It may have been deleted: return to the list.", 404)
    if isinstance(error, BrokersUnreachable | RequestTimedOut):
        return Problem(f"{text}. Check that the brokers at {servers} run and are reachable from here.", 504)
    if isinstance(error, NotAuthenticated):
        return Problem(f"{text}. Check the credentials in the profile or the --command-config file.", 502)
    if isinstance(error, NotAuthorized):
        return Problem(f"{text}.", 403)
    if isinstance(error, UnsupportedVersion):
        return Problem(f"{text}. This needs a newer broker.", 501)
    return Problem(f"{text}.", 409 if error.code else 502)
