"""What a program hands to a producer: bytes or texts, headers as pairs or as a dictionary."""

from collections.abc import Iterable, Mapping

from ottla.client.producer.closed import Listener
from ottla.records.record import Header

Content = bytes | str | None
"""A key, a value: texts travel as UTF-8, None is null."""
Headers = Mapping[str, Content] | Iterable[tuple[str, Content]]
OnDelivery = Listener
"""Called with why a record was not appended, or with where it is."""


def as_bytes(content: Content) -> bytes | None:
    """As it travels."""
    return content.encode() if isinstance(content, str) else content


def header_list(headers: Headers) -> list[Header]:
    """As they travel, in order."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, as_bytes(content)) for name, content in pairs]
