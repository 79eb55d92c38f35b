"""Topics that metadata responses lack or deny: when that is logged, and which errors the application gets."""

import logging
from collections.abc import Iterable
from typing import Final

from ottla.client.errors import KafkaError, Permission, error_for
from ottla.protocol.errors import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION

_WARN_AFTER_MS: Final = 1500
_WARN_EVERY_MS: Final = 10_000
_DENIED_MS: Final = 10_000
"""Time after which the metadata of a denied topic is requested again, and another denial is an error again."""
logger = logging.getLogger("ottla.client")


def topic_error(code: int, name: str, operation: str) -> KafkaError:
    """Return the error of a topic in a metadata response.

    operation  operation that the client needs the topic for
    """
    return error_for(code, f"topic {name}", None, Permission(operation, "topic", (name,)))


class _MissingTopic:
    """Topic that is missing or not authorized: since when, and when that was last logged.

    denied_ms    time of the last response, if it denied the topic
    reported_ms  time of the last response that `MissingTopics.denial` has returned
    """

    __slots__ = ("begun_ms", "denied_ms", "reported_ms", "warned_ms")

    def __init__(self, now_ms: int) -> None:
        self.begun_ms = now_ms
        self.warned_ms: int | None = None
        self.denied_ms: int | None = None
        self.reported_ms: int | None = None


class MissingTopics:
    """Missing and denied topics of one client."""

    def __init__(self) -> None:
        self._topics: dict[str, _MissingTopic] = {}

    def add(self, name: str, code: int, operation: str, now_ms: int) -> None:
        """Handle a topic with an error in a response.

        Log that it is unavailable: not the first time, as it may be about to be created; then every few seconds.
        """
        missing = self._topics.setdefault(name, _MissingTopic(now_ms))
        missing.denied_ms = now_ms if code == TOPIC_AUTHORIZATION_FAILED else None
        last = missing.begun_ms if missing.warned_ms is None else missing.warned_ms
        if now_ms - last < (_WARN_AFTER_MS if missing.warned_ms is None else _WARN_EVERY_MS):
            return
        missing.warned_ms = now_ms
        does_not_exist = code == UNKNOWN_TOPIC_OR_PARTITION
        what = f"topic {name} does not exist" if does_not_exist else topic_error(code, name, operation)
        logger.warning("%s (asked for since %.0f s)", what, (now_ms - missing.begun_ms) / 1000)

    def discard(self, name: str) -> None:
        """Handle a topic that is in a response without an error."""
        self._topics.pop(name, None)

    def has(self, name: str) -> bool:
        """Return whether the last response had no such topic."""
        missing = self._topics.get(name)
        return missing is not None and missing.denied_ms is None

    def denial(self, names: Iterable[str], operation: str) -> KafkaError | None:
        """Return an error that names those topics which responses since the last call denied; one topic every few seconds."""
        topics: list[str] = []
        for name in names:
            missing = self._topics.get(name)
            if missing is None or missing.denied_ms is None:
                continue
            if missing.reported_ms is None or missing.denied_ms - missing.reported_ms >= _DENIED_MS:
                missing.reported_ms = missing.denied_ms
                topics.append(name)
        if not topics:
            return None
        about = f"{'topic' if len(topics) == 1 else 'topics'} {', '.join(topics)}"
        permission = Permission(operation, "topic", tuple(topics))
        return error_for(TOPIC_AUTHORIZATION_FAILED, about, None, permission)

    def was_denied_recently(self, name: str, now_ms: int) -> bool:
        """Return True if a topic was denied so recently that another request is too early."""
        missing = self._topics.get(name)
        return missing is not None and missing.denied_ms is not None and now_ms - missing.denied_ms < _DENIED_MS
