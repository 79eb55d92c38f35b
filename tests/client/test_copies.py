"""Values that clients return can be pickled, copied, compared, hashed and printed, with compiled modules too."""

import copy
import enum
import importlib
import pickle
import pkgutil
from collections.abc import Iterator
from typing import Any, Final

import pytest

import ottla
import ottla.client
from ottla.client.admin.results import Results
from ottla.client.errors import KafkaError, LogTruncation, OffsetOutOfRange
from ottla.client.metrics import MetricName, MetricValues
from ottla.client.serialization import DeserializedRecord, UnreadableRecord
from ottla.net.errors import RetriableError
from ottla.records.record import NOWHERE, Origin, Record

ORIGIN: Final = Origin("t", 3, 1, 7, 2)
RECORD: Final = Record(5, 1000, b"k", b"v", [("h", b"1"), ("h", None)], ORIGIN)
SUBCLASSED: Final = (ottla.Producer, ottla.Consumer, ottla.ShareConsumer, ottla.Admin, KafkaError)
"""Classes that docs/python.md allows users to derive from, and those of `ottla.aio`."""


def client_classes() -> Iterator[type]:
    """All classes in modules of the client, and what `ottla` exports."""
    seen = set()
    for info in pkgutil.walk_packages(ottla.client.__path__, "ottla.client."):
        if info.name.endswith("opentelemetry"):
            pytest.importorskip("opentelemetry.metrics")
        for value in vars(importlib.import_module(info.name)).values():
            if isinstance(value, type) and value.__module__.startswith("ottla.") and value not in seen:
                seen.add(value)
                yield value


def is_named_tuple(value: type) -> bool:
    return issubclass(value, tuple) and hasattr(value, "_fields")


CLASSES: Final = list(client_classes())
TUPLES: Final = [
    public_class
    for public_class in CLASSES
    if is_named_tuple(public_class) and not public_class.__name__.startswith("_")
]
ENUMS: Final = [public_class for public_class in CLASSES if issubclass(public_class, enum.Enum)]
ERRORS: Final = [public_class for public_class in CLASSES if issubclass(public_class, KafkaError)]


def samples() -> Iterator[Any]:
    """One object of each class, whose fields differ from each other."""
    for value_class in TUPLES:
        yield tuple.__new__(value_class, [f"{name}-{number}" for number, name in enumerate(value_class._fields)])  # type: ignore[attr-defined]
    for value_class in ENUMS:
        yield from value_class
    yield from (RECORD, Record(0, -1, None, None), Record(2**60, 0, b"", bytes(100_000)))
    yield Results({"a": 1, ("b", 2): RECORD}, {"c": KafkaError("denied", 29)})
    yield MetricValues({MetricName("g", "n", (("client-id", "x"),)): 1.5})
    yield DeserializedRecord(RECORD, {"a": 1}, [1, 2])


@pytest.mark.parametrize("sample", list(samples()), ids=lambda sample: type(sample).__name__)
def test_copies_are_equal(sample: Any) -> None:
    copies = [copy.copy(sample), copy.deepcopy(sample)]
    copies += [pickle.loads(pickle.dumps(sample, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for copied in copies:
        assert type(copied) is type(sample)
        assert copied == sample
        assert not copied != sample  # noqa: SIM202
        assert repr(copied) == repr(sample)
        if type(sample).__hash__ is not None:
            assert hash(copied) == hash(sample)
    assert sample != object()


def test_a_copy_of_a_record_has_its_origin_and_headers() -> None:
    for copied in (copy.copy(RECORD), copy.deepcopy(RECORD), pickle.loads(pickle.dumps(RECORD))):
        assert (copied.topic, copied.partition, copied.timestamp_type, copied.leader_epoch, copied.delivery_count) == (
            "t", 3, 1, 7, 2,
        )  # fmt: skip
        assert copied.headers == [("h", b"1"), ("h", None)]
    assert pickle.loads(pickle.dumps(Record(1, 2, None, None))).origin.partition == NOWHERE.partition


@pytest.mark.parametrize("error_class", ERRORS, ids=lambda error_class: error_class.__name__)
def test_errors_keep_their_text_code_and_attributes(error_class: type[KafkaError]) -> None:
    error = error_class("what happened", 6)
    vars(error).update(log_start=10, position=20, diverging=30)
    for copied in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(copied) is error_class
        assert (str(copied), copied.code, copied.name, copied.retriable) == (
            "what happened", 6, "NOT_LEADER_OR_FOLLOWER", error.retriable,
        )  # fmt: skip
        assert vars(copied) == {"code": 6, "log_start": 10, "position": 20, "diverging": 30}
        assert repr(copied) == repr(error)


def test_an_unreadable_record_keeps_its_record() -> None:
    error = UnreadableRecord(RECORD, "value", ValueError("no JSON"))
    for copied in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert str(copied) == str(error)
        assert copied.record == RECORD


def test_results_with_errors_can_be_compared() -> None:
    assert Results({"a": 1}, {"b": KafkaError("x", 3)}) == Results({"a": 1}, {"b": KafkaError("x", 3)})
    assert Results({"a": 1}, {"b": KafkaError("x", 3)}) != Results({"a": 1}, {"b": KafkaError("x", 5)})
    assert Results({"a": 1}) != Results({"a": 2})


@pytest.mark.parametrize("base", [*SUBCLASSED, RetriableError, OffsetOutOfRange, LogTruncation])
def test_public_classes_can_be_subclassed(base: type) -> None:
    derived = type("Derived", (base,), {"marked": True})
    assert derived.marked  # type: ignore[attr-defined]
    if issubclass(base, KafkaError):
        assert str(derived("text")) == "text"


def test_the_tables_have_all_values_that_clients_return() -> None:
    names = {public_class.__name__ for public_class in (*TUPLES, *ENUMS, *ERRORS)}
    assert {
        "Delivered",
        "TopicPartition",
        "OffsetAndMetadata",
        "GroupMetadata",
        "FoundOffset",
        "AcknowledgeType",
    } <= names
    assert {"TopicDescription", "ConsumerGroupDescription", "ConfigEntry", "RequestTimedOut", "IllegalState"} <= names
