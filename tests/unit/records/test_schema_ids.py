"""Schemas of keys and values: which records a topic accepts, in one pass over a batch."""

import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import build
from ottla.records.compression import CODECS
from ottla.records.record import Header, Record
from ottla.records.schema_ids import (
    MOST_UNKNOWN,
    RECORD_NAME,
    TOPIC_NAME,
    TOPIC_RECORD_NAME,
    FieldSchemas,
    SchemaRules,
)
from ottla.records.validation import INVALID_RECORD, INVALID_TIMESTAMP, NONE, Prepared, ProduceRules, prepare

NOW = 1_700_000_000_000
GUID = uuid.UUID("095d71cf-1255-6b9d-5e33-0ad575b3df5d")
ANY = (b"",)
KNOWN, OTHER, MISSING, UNKNOWN = 7, 8, 9, 10
HEADER = "__value_schema_id"


def framed(number: int, payload: bytes = b"x") -> bytes:
    return b"\0" + (number & 0xFFFFFFFF).to_bytes(4, "big") + payload


def learned(strategy: int = TOPIC_NAME, field: str = "value", now_ms: int = NOW) -> FieldSchemas:
    """Schemas of the values of topic t: 7 and a GUID are registered, 8 under another subject, 9 not at all."""
    schemas = FieldSchemas("t", field, strategy)
    schemas.learn(KNOWN, frozenset({f"t-{field}", "n.R", "t-n.R"}), [("n.R", ANY)], now_ms)
    schemas.learn(GUID.bytes, frozenset({f"t-{field}"}), [], now_ms)
    schemas.learn(OTHER, frozenset({"u-value"}), [("n.Other", ANY)], now_ms)
    schemas.refuse_missing(MISSING, now_ms)
    return schemas


def rules(*, key: FieldSchemas | None = None, value: FieldSchemas | None = None) -> ProduceRules:
    return ProduceRules(schemas=SchemaRules(key, value, lambda: NOW), max_message_bytes=1 << 24)


def batch_of(records: Sequence[Record], codec: int = 0) -> bytes:
    numbered = [
        Record(offset, record.timestamp, record.key, record.value, record.headers)
        for offset, record in enumerate(records)
    ]
    return build(numbered, codec=codec)


def checked(records: Sequence[Record], own: ProduceRules, codec: int = 0) -> Prepared:
    batch = batch_of(records, codec)
    result = prepare(batch, 0, len(batch), own, NOW)
    if result.remaining is not None:
        for _ in result.remaining:
            pass
    return result


def value(data: bytes | None, *headers: Header) -> Record:
    return Record(0, NOW, None, data, list(headers))


def reason(data: bytes | None, *headers: Header, strategy: int = TOPIC_NAME) -> str | None:
    """Return why a value is refused, None if it is accepted."""
    result = checked([value(data, *headers)], rules(value=learned(strategy)))
    assert not result.unknown
    if result.error_code == NONE:
        assert not result.record_errors
        return None
    assert result.error_code == INVALID_RECORD
    ((index, message),) = result.record_errors
    assert index == 0
    return message


NOT_REGISTERED = "Schema id 8 of the value is not registered under subject t-value"
NO_SCHEMA = "Schema id 9 of the value is not in the schema registry"
ODD_HEADER = "The header __value_schema_id has neither a GUID nor a schema id"


@pytest.mark.parametrize(
    ("data", "headers", "expected"),
    [
        (framed(KNOWN), (), None),
        (framed(KNOWN, b""), (), None),
        (None, (), None),
        (None, ((HEADER, b"?"),), None),
        (b"", (), "The value has 0 bytes: too few for magic byte and schema id"),
        (b"\0", (), "The value has 1 bytes: too few for magic byte and schema id"),
        (b"\0\0", (), "The value has 2 bytes: too few for magic byte and schema id"),
        (b"\0\0\0", (), "The value has 3 bytes: too few for magic byte and schema id"),
        (b"\0\0\0\0", (), "The value has 4 bytes: too few for magic byte and schema id"),
        (b"\1\0\0\0\7x", (), "The value begins with byte 1, not with magic byte 0 and a schema id"),
        (b'{"a": 1}', (), "The value begins with byte 123, not with magic byte 0 and a schema id"),
        (framed(OTHER), (), NOT_REGISTERED),
        (framed(MISSING), (), NO_SCHEMA),
        (framed(KNOWN), (("a", b"b"),), None),
        (framed(OTHER), (("a", b"b"), ("c", None)), NOT_REGISTERED),
        (b"", (("a", b"b"),), "The value has 0 bytes: too few for magic byte and schema id"),
        (b"", ((HEADER, b"\1" + GUID.bytes),), None),
        (b"x", (("a", None), (HEADER, b"\1" + GUID.bytes + b"\2\1"), ("b", b"")), None),
        (b"x", ((HEADER, framed(KNOWN, b"")),), None),
        (framed(OTHER), ((HEADER, framed(KNOWN, b"")),), None),
        (framed(KNOWN), ((HEADER, framed(OTHER, b"")),), NOT_REGISTERED),
        (framed(KNOWN), ((HEADER, None),), None),
        (framed(OTHER), ((HEADER, None), (HEADER, framed(KNOWN))), None),
        (framed(KNOWN), ((HEADER, b""),), ODD_HEADER),
        (framed(KNOWN), ((HEADER, b"\1" + GUID.bytes[:15]),), ODD_HEADER),
        (framed(KNOWN), ((HEADER, b"\0\0\0\0"),), ODD_HEADER),
        (framed(KNOWN), ((HEADER, b"\2" + GUID.bytes),), ODD_HEADER),
        (framed(KNOWN), (("__key_schema_id", framed(OTHER)),), None),
        (framed(KNOWN), (("__value_schema_i", framed(OTHER)), ("__value_schema_idx", b"?")), None),
    ],
)
def test_value_is_accepted_by_its_schema(data: bytes | None, headers: tuple[Header, ...], expected: str | None) -> None:
    assert reason(data, *headers) == expected


@pytest.mark.parametrize("strategy", [RECORD_NAME, TOPIC_RECORD_NAME])
def test_subject_is_that_of_the_record(strategy: int) -> None:
    assert reason(framed(KNOWN), strategy=strategy) is None
    before = "" if strategy == RECORD_NAME else "t-"
    refusal = f"Schema id 8 of the value is not registered under subject {before}n.Other"
    assert reason(framed(OTHER), strategy=strategy) == refusal


def test_schema_without_a_record_name_has_no_subject_of_it() -> None:
    schemas = FieldSchemas("t", "value", RECORD_NAME)
    own = rules(value=schemas)
    schemas.learn(1, frozenset({"x"}), [], NOW)
    ((_, message),) = checked([value(framed(1))], own).record_errors
    assert message == "Schema id 1 of the value has no record name, by which its subject is called"


@pytest.mark.parametrize("in_header", [False, True])
@pytest.mark.parametrize(
    ("indexes", "is_accepted"),
    [(b"\0", True), (b"\2\0", True), (b"\2\2", False), (b"\4\2\0", True), (b"\4\2\2", False), (b"", False)],
)
def test_protobuf_message_is_registered_under_its_own_name(indexes: bytes, is_accepted: bool, in_header: bool) -> None:
    schemas = FieldSchemas("t", "value", RECORD_NAME)
    own = rules(value=schemas)
    names = [("A", (b"\0", b"\2\0")), ("B", (b"\2\2",)), ("B.C", (b"\4\2\0",)), ("B.D", (b"\4\2\2",))]
    schemas.learn(1, frozenset({"A", "B.C"}), names, NOW)
    record = value(b"x", (HEADER, framed(1, indexes))) if in_header else value(framed(1, indexes))
    for _ in range(2):  # the second time by what was learned from the first one
        assert (checked([record], own).error_code == NONE) == is_accepted


def test_key_and_value_have_rules_of_their_own() -> None:
    own = rules(key=learned(field="key"), value=learned())
    good, bad = framed(KNOWN), framed(OTHER)
    records = [Record(0, NOW, key, data, []) for key in (good, bad, None) for data in (good, bad, None)]
    errors = dict(checked(records, own).record_errors)
    of_key = "Schema id 8 of the key is not registered under subject t-key"
    assert errors == {1: NOT_REGISTERED, 3: of_key, 4: of_key, 5: of_key, 7: NOT_REGISTERED}
    assert checked(records, rules(key=learned(field="key"))).record_errors == [(3, of_key), (4, of_key), (5, of_key)]


def test_key_of_a_compacted_topic_is_the_first_error_of_its_record() -> None:
    own = rules(value=learned())
    own.compacted = True
    result = checked([value(framed(OTHER)), Record(0, NOW, b"k", framed(OTHER), [])], own)
    assert [message for _, message in result.record_errors] == [
        "Compacted topic cannot accept message without key in topic partition ",
        NOT_REGISTERED,
    ]


def test_timestamps_decide_the_code_of_a_batch() -> None:
    own = rules(value=learned())
    result = checked([value(framed(OTHER)), Record(0, NOW + (1 << 40), None, framed(KNOWN), [])], own)
    assert result.error_code == INVALID_TIMESTAMP
    assert [index for index, _ in result.record_errors] == [0, 1]


def test_batch_with_an_unknown_schema_is_neither_valid_nor_refused() -> None:
    own = rules(key=learned(field="key"), value=learned())
    guid = uuid.uuid4().bytes
    records = [
        Record(0, NOW, framed(UNKNOWN), framed(OTHER), []),
        Record(0, NOW, framed(KNOWN), framed(UNKNOWN), []),
        Record(0, NOW, framed(KNOWN), b"", [(HEADER, b"\1" + guid)]),
        Record(0, NOW, framed(UNKNOWN), framed(-1), []),
    ]
    result = checked(records, own)
    assert result.error_code == NONE
    assert result.unknown == [
        ("key", UNKNOWN),
        ("value", UNKNOWN),
        ("value", guid),
        ("value", 0xFFFFFFFF),
    ]


def test_more_unknown_schemas_than_are_looked_up_are_refused() -> None:
    own = rules(value=learned())
    records = [value(framed(100 + number)) for number in range(MOST_UNKNOWN)]
    assert len(checked(records, own).unknown) == MOST_UNKNOWN
    result = checked([*records, value(framed(99))], own)
    assert (result.error_code, result.unknown) == (INVALID_RECORD, [])
    message = "Schema id 99 of the value follows 100 others of the batch that are not known yet"
    assert result.record_errors == [(MOST_UNKNOWN, message)]


@pytest.mark.parametrize("codec", range(len(CODECS)))
@pytest.mark.parametrize("size", [10, 100_000])
def test_bad_records_are_named_with_every_codec_and_size(codec: int, size: int) -> None:
    good = value(framed(KNOWN, b"x" * size))
    records = [good if number % 40 else value(framed(OTHER)) for number in range(100)]
    assert checked(records, rules(value=learned()), codec).record_errors == [
        (0, NOT_REGISTERED),
        (40, NOT_REGISTERED),
        (80, NOT_REGISTERED),
    ]
    assert checked([good] * 50, rules(value=learned()), codec).error_code == NONE


def test_a_change_of_the_registry_makes_all_schemas_unknown() -> None:
    schemas, changes = FieldSchemas("t", "value", TOPIC_NAME), [1]
    own = ProduceRules(schemas=SchemaRules(None, schemas, lambda: NOW, lambda: changes[0]))
    records = [value(framed(KNOWN)), value(b"", (HEADER, b"\1" + GUID.bytes))]
    unknown = [("value", KNOWN), ("value", GUID.bytes)]
    assert checked(records, own).unknown == unknown
    for known in (KNOWN, GUID.bytes):
        schemas.learn(known, frozenset({"t-value"}), (), NOW)
    for _ in range(2):
        assert checked(records, own).unknown == []
    changes[0] += 1
    assert checked(records, own).unknown == unknown


@pytest.mark.parametrize(("later_ms", "is_known"), [(0, True), (999, True), (1000, False)])
def test_refusal_holds_for_a_second(later_ms: int, is_known: bool) -> None:
    schemas = FieldSchemas("t", "value", TOPIC_NAME)
    own = ProduceRules(schemas=SchemaRules(None, schemas, lambda: NOW + later_ms))
    schemas.refuse(1, "no", NOW)
    schemas.learn(2, frozenset({"t-value"}), (), NOW)
    batch = batch_of([value(framed(1)), value(framed(2))])
    result = prepare(batch, 0, len(batch), own, NOW)
    assert result.unknown == ([] if is_known else [("value", 1)])


def test_refusals_do_not_fill_the_memory() -> None:
    schemas = FieldSchemas("t", "value", TOPIC_NAME)
    for number in range(30_000):
        schemas.refuse(number, "no", NOW)
    assert len(schemas._refused) <= 10_000


def naive(data: bytes | None, headers: Sequence[Header]) -> bool:
    """Return whether a value is accepted, by the words of the module alone."""
    if data is None:
        return True
    held = next((held for name, held in headers if name == HEADER and held is not None), None)
    if held is not None and held[:1] == b"\1" and len(held) >= 17:
        return held[1:17] == GUID.bytes
    head = data if held is None else held
    return head[:5] == framed(KNOWN, b"")


HEADS = st.one_of(
    st.binary(max_size=6),
    st.sampled_from([framed(KNOWN), framed(KNOWN, b""), framed(OTHER), framed(MISSING), b"\1" + GUID.bytes]),
    st.sampled_from([b"\1" + b"\7" * 16, b"\1" + GUID.bytes + b"\2\1", b"x" * 100, framed(KNOWN, b"x" * 10_000)]),
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from([HEADER, "a", "__key_schema_id", "__value_schema_ix", "h" * 70, ""]),
        st.one_of(st.none(), HEADS),
    ),
    max_size=3,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.one_of(st.none(), HEADS), HEADERS), min_size=1, max_size=6))
def test_random_records_are_judged_as_by_the_words(records: list[tuple[bytes | None, list[Header]]]) -> None:
    own = rules(value=learned())
    batch = batch_of([value(data, *headers) for data, headers in records])
    for _ in range(MOST_UNKNOWN):
        result = prepare(batch, 0, len(batch), own, NOW)
        if not result.unknown:
            break
        for _, schema in result.unknown:
            assert own.schemas is not None
            assert own.schemas.value is not None
            own.schemas.value.refuse_missing(schema, NOW)
    expected = [index for index, (data, headers) in enumerate(records) if not naive(data, headers)]
    assert [index for index, _ in result.record_errors] == expected
    assert result.error_code == (INVALID_RECORD if expected else NONE)
