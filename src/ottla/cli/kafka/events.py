"""Events of the verifiable clients: one JSON object per line, for test programs that verify written and read records.

Names and order of events and fields are those of Kafka's tools.
"""

import json
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from ottla.client.errors import KafkaError
from ottla.protocol import errors as table
from ottla.records.record import Record

_JAVA_NAMES = {
    table.REQUEST_TIMED_OUT: "TimeoutException",
    table.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    table.CORRUPT_MESSAGE: "CorruptRecordException",
    table.NOT_ENOUGH_REPLICAS: "NotEnoughReplicasException",
    table.SASL_AUTHENTICATION_FAILED: "SaslAuthenticationException",
    table.UNKNOWN_SERVER_ERROR: "UnknownServerException",
}
"""Exception classes whose names do not follow from the name of the error code."""


class Events:
    """Thread-safe printer of events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def emit(self, event: str, **fields: Any) -> None:
        """Print an event with the current time."""
        document = {"timestamp": time.time_ns() // 1_000_000, "name": event, **fields}
        line = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        with self._lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def records(self, records: Iterable[Record]) -> None:
        """Print an event for each record that was read."""
        for record in records:
            self.emit(
                "record_data",
                key=_text(record.key),
                value=_text(record.value),
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def java_class(error: KafkaError) -> str:
    """Return the text that Java prints for the exception class of an error."""
    name = _JAVA_NAMES.get(error.code)
    if name is None:
        name = "".join(word.capitalize() for word in error.name.split("_"))
        name = name.replace("AuthorizationFailed", "Authorization")
        name = name if name.endswith("Exception") else f"{name}Exception"
    return f"class org.apache.kafka.common.errors.{name}"


def by_partition(records: Iterable[Record]) -> dict[tuple[str, int], list[Record]]:
    """Group records by partition, in the order of first occurrence."""
    records_of: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        records_of.setdefault((record.topic, record.partition), []).append(record)
    return records_of
