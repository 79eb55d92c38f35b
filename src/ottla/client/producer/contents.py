"""Types and checks of the arguments of `produce`: keys and values as bytes or str, headers as pairs or dictionary."""

from collections.abc import Iterable, Mapping

from ottla.client.producer.closed import Listener
from ottla.records.record import Header

Content = bytes | str | None
"""Key or value of a record: a str is encoded as UTF-8, None is null."""
Headers = Mapping[str, Content] | Iterable[tuple[str, Content]]
OnDelivery = Listener
"""Callback for the outcome of a record: (error, None) or (None, Delivered)."""


def wrong_argument(
    topic: object, value: object, key: object, partition: object, timestamp: object, headers: object
) -> TypeError | None:
    """Return the error that names a wrong argument of `produce`; None when all have the right types."""
    arguments: list[tuple[str, object, tuple[type, ...], str]] = [
        ("topic", topic, (str,), "str"),
        ("value", value, (bytes, str, type(None)), "bytes, str or None"),
        ("key", key, (bytes, str, type(None)), "bytes, str or None"),
        ("partition", partition, (int,), "int"),
        ("timestamp", timestamp, (int, type(None)), "int (ms since the epoch) or None"),
        ("headers", headers, (Iterable, type(None)), "a mapping, pairs or None"),
    ]
    if isinstance(headers, str | bytes):  # they are iterable, too
        return TypeError(f"headers must be a mapping, pairs or None, not {type(headers).__name__}")
    if isinstance(headers, Mapping | list | tuple):
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                return TypeError(f"headers are (name, value) pairs, not {pair!r}")
            arguments.append(("the name of a header", pair[0], (str,), "str"))
            arguments.append((f"header {pair[0]}", pair[1], (bytes, str, type(None)), "bytes, str or None"))
    for name, argument, allowed, types in arguments:
        if not isinstance(argument, allowed):
            return TypeError(f"{name} must be {types}, not {type(argument).__name__}")
    return None


def as_bytes(content: Content) -> bytes | None:
    """Encode a key or value; a str as UTF-8."""
    return content.encode() if isinstance(content, str) else content


def header_list(headers: Headers) -> list[Header]:
    """Encode headers as a list of (name, value) pairs, in order."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, as_bytes(content)) for name, content in pairs]


def check_headers(headers: Headers | None) -> list[Header] | None:
    """Return the headers as `header_list` does; None if there are no headers. Raises TypeError for a wrong type."""
    try:
        return None if headers is None else header_list(headers)
    except (TypeError, ValueError, AttributeError) as error:
        raise wrong_argument("", None, None, -1, None, headers) or error from None
