"""Options and columns of format("ottla-delta"), which need neither a session nor deltalake."""

import re
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from ottla.spark.delta.columns import check_appendable, check_partitions, fields_of, match_columns
from ottla.spark.delta.options import table_options
from ottla.spark.offsets import InvalidOption

GOOD: list[DataType] = [
    BinaryType(),
    BooleanType(),
    ByteType(),
    DateType(),
    DecimalType(38, 18),
    DoubleType(),
    FloatType(),
    IntegerType(),
    LongType(),
    ShortType(),
    StringType(),
    TimestampType(),
    TimestampNTZType(),
]
BAD: list[DataType] = [
    CharType(3),
    VarcharType(3),
    NullType(),
    DayTimeIntervalType(),
    YearMonthIntervalType(),
    VariantType(),
]


def nested(kind: DataType) -> list[DataType]:
    """The type, and all that may contain it."""
    struct = StructType([StructField("a", LongType(), nullable=False), StructField("b", kind, nullable=False)])
    return [kind, struct, ArrayType(kind, containsNull=False), MapType(StringType(), ArrayType(struct))]


def row(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind, nullable=False) for name, kind in fields])


@pytest.mark.parametrize("kind", GOOD, ids=str)
def test_a_type_that_delta_has_is_a_nullable_field(kind: DataType) -> None:
    for wrapped in nested(kind):
        (field,) = fields_of(row(("c", wrapped)))
        assert StructField.fromJson(field).dataType.simpleString() == wrapped.simpleString()
        assert '"nullable": false' not in str(field).replace("'", '"').replace("False", "false")
        assert "'containsNull': False" not in str(field)


@pytest.mark.parametrize("kind", BAD, ids=str)
def test_a_type_that_delta_lacks_is_refused_at_any_depth(kind: DataType) -> None:
    for wrapped in nested(kind):
        with pytest.raises(InvalidOption, match=r"column c has the type .*, which Delta lacks: cast it"):
            fields_of(row(("c", wrapped)))


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a;b", "{a", "a}", "(a", "a)", "a\nb", "a\tb", "a=b"])
def test_a_name_that_delta_refuses_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="refuses in names"):
        fields_of(row((name, LongType())))


def test_names_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(InvalidOption, match="column ID is there twice"):
        fields_of(row(("id", LongType()), ("ID", LongType())))
    with pytest.raises(InvalidOption, match="no columns"):
        fields_of(row())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "set the option path"),
        ({"path": " "}, "set the option path"),
        ({"path": "tables/orders"}, "path must be absolute"),
        ({"path": "file:tables"}, "path must be absolute"),
        ({"path": "/t", "mergeschema": "yes"}, "mergeSchema must be true or false, not 'yes'"),
        ({"path": "/t", "partitonby": "day"}, "partitonby is not an option .* did you mean partitionBy?"),
        ({"path": "/t", "exactlyonce": "true"}, "exactlyonce is not an option"),
        ({"path": "/t", "txnappid": "a"}, "must be set together"),
        ({"path": "/t", "txnversion": "1"}, "must be set together"),
        ({"path": "/t", "txnappid": "a", "txnversion": "-1"}, "txnVersion must be a whole number from 0 on, not '-1'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        table_options(options, stream=False)


@pytest.mark.parametrize(
    ("path", "location", "is_local"),
    [
        ("/data/orders/", "/data/orders", True),
        ("file:/data/orders", "/data/orders", True),
        ("file:///data/a%20b", "/data/a b", True),
        ("s3://bucket/orders/", "s3://bucket/orders", False),
        ("/", "/", True),
    ],
)
def test_a_path_is_a_location(path: str, location: str, *, is_local: bool) -> None:
    options = table_options({"path": path, "checkpointlocation": "c", "queryname": "q"}, stream=True)
    assert (options.location, options.is_local) == (location, is_local)


def test_options_are_parsed() -> None:
    raw = {"path": "/t", "partitionby": "day, region", "mergeschema": "TRUE", "storage.aws_region": "eu"}
    options = table_options({**raw, "txnappid": "nightly", "txnversion": "7"}, stream=False)
    assert options == ("/t", ("day", "region"), True, {"aws_region": "eu"}, ("nightly", 7))
    with pytest.raises(InvalidOption, match="batch writes only"):
        table_options({**raw, "txnappid": "nightly", "txnversion": "7"}, stream=True)


FRAME = fields_of(row(("id", LongType()), ("day", DateType()), ("amount", DoubleType())))


@pytest.mark.parametrize(
    ("partition_by", "reason"),
    [
        (["month"], "partitionBy has month, which is no column; the columns are id, day, amount"),
        (["amount"], "partitionBy has amount, of the type double: it must be one of"),
        (["day", "day"], "partitionBy has a column twice"),
    ],
)
def test_partition_columns_that_cannot_be_are_refused(partition_by: list[str], reason: str) -> None:
    check_partitions(FRAME, ["id", "day"])
    with pytest.raises(InvalidOption, match=reason):
        check_partitions(FRAME, partition_by)
    with pytest.raises(InvalidOption, match="none would be left"):
        check_partitions(FRAME[:2], ["id", "day"])


@pytest.mark.parametrize(
    ("features", "configuration", "metadata", "reason"),
    [
        (["rowTracking"], {}, {}, "rowTracking"),
        (["inCommitTimestamp", "appendOnly"], {}, {}, "inCommitTimestamp"),
        (None, {"delta.constraints.positive": "id > 0"}, {}, "delta.constraints.positive"),
        (None, {"delta.columnMapping.mode": "name"}, {}, "delta.columnMapping.mode"),
        (["generatedColumns"], {}, {"delta.generationExpression": "1"}, "delta.generationExpression of id"),
        (["invariants"], {}, {"delta.invariants": "{}"}, "delta.invariants of id"),
        (["identityColumns"], {}, {"delta.identity.start": 1}, "delta.identity.start of id"),
    ],
)
def test_a_table_whose_rules_would_be_ignored_is_refused(
    features: list[str] | None, configuration: dict[str, str], metadata: dict[str, Any], reason: str
) -> None:
    fields = [{**FRAME[0], "metadata": metadata}]
    with pytest.raises(InvalidOption, match=f"does not apply {re.escape(reason)}$"):
        check_appendable(features, configuration, fields)


def test_a_table_whose_features_need_nothing_of_an_append_is_accepted() -> None:
    features = ["appendOnly", "checkConstraints", "columnMapping", "deletionVectors", "generatedColumns"]
    check_appendable(features, {"delta.columnMapping.mode": "none", "delta.appendOnly": "true"}, FRAME)


def test_columns_are_matched_by_name_in_the_spelling_of_the_table() -> None:
    frame = fields_of(row(("ID", LongType()), ("note", StringType())))
    names, lacking = match_columns(frame, FRAME, merge=True)
    assert (names, [field["name"] for field in lacking]) == (["id", "note"], ["note"])
    with pytest.raises(InvalidOption, match=r"the table has no column note: set mergeSchema=true"):
        match_columns(frame, FRAME, merge=False)
    with pytest.raises(InvalidOption, match="column id is string, in the table long: cast it to that"):
        match_columns(fields_of(row(("id", StringType()))), FRAME, merge=True)
    required = [{**FRAME[1], "nullable": False}]
    with pytest.raises(InvalidOption, match="column day of the table must not be null"):
        match_columns(fields_of(row(("id", LongType()))), required, merge=True)
