"""Fields of log records about a request: listener, principal and client, for the log in JSON."""

from ottla.protocol.context import RequestContext


def log_fields(context: RequestContext) -> dict[str, str | None]:
    """Return the `extra` of a log record about a request."""
    return {
        "listener": context.listener,
        "principal": context.principal,
        "client_id": context.client_id,
        "client_host": context.client_host,
    }
