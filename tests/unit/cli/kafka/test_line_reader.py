"""Lines of the console producer as records: separators and markers as in Kafka's LineMessageReader."""

import pytest

from ottla.cli.kafka.line_reader import LineReader, Parsed


def parsed(line: str, **properties: str) -> Parsed:
    return LineReader({name.replace("_", "."): value for name, value in properties.items()}).parse(line.encode(), 1)


@pytest.mark.parametrize(
    ("properties", "equal"),
    [
        ({"headers.separator": "\t"}, "headers.delimiter and headers.separator"),
        ({"headers.key.separator": ","}, "headers.separator and headers.key.separator"),
        ({"null.marker": "\t"}, "null.marker and headers.delimiter"),
        ({"null.marker": "", "key.separator": ""}, "null.marker and key.separator"),
    ],
)
def test_separators_that_are_equal(properties: dict[str, str], equal: str) -> None:
    """Also where the lines have neither keys nor headers."""
    with pytest.raises(ValueError, match=f"^{equal} may not be equal$"):
        LineReader(properties)


def test_an_empty_separator_is_found_at_the_beginning() -> None:
    assert parsed("kv", parse_key="true", key_separator="") == (b"", b"kv", [])
    assert parsed("h\tv", parse_headers="true", headers_key_separator="") == (None, b"v", [("", b"h")])


def test_empty_texts_at_the_end_of_headers() -> None:
    assert parsed("h:1,,\tv", parse_headers="true").headers == [("h", b"1")]
    assert parsed(",\tv", parse_headers="true").headers == []
    for text in ("\tv", ",h:1\tv"):
        with pytest.raises(ValueError, match="No header key separator found in pair ''"):
            parsed(text, parse_headers="true")
