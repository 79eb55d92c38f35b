"""Regular expressions as the broker takes them: RE2's, against whole names."""

import time

import pytest

from ottla.coordinators.groups.consumer.regexes import check_regex, matching
from ottla.regexes import InvalidRegex

NAMES = ["orders", "orders-eu", "orders.us", "Orders", "payments", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders-eu", "orders.us"}),
        ("(?i)orders", {"orders", "Orders"}),
        ("orders|payments", {"orders", "payments"}),
        ("^orders$", {"orders"}),
        (r"orders\.us", {"orders.us"}),
        (r"\Qorders.us\E", {"orders.us"}),
        (r"\p{Lu}rders", {"Orders"}),
        ("o", set()),
        ("", set()),
        (".*", set(NAMES)),
    ],
)
def test_whole_names_match(regex: str, expected: set[str]) -> None:
    check_regex(regex)
    assert matching(regex, NAMES) == expected


@pytest.mark.parametrize("regex", ["(", "*", "a{2,1}", "[b-a]", "(?=a)", "(?<!a)b", r"(a)\1", "a{100000}"])
def test_invalid_expressions_are_refused(regex: str) -> None:
    with pytest.raises(InvalidRegex) as caught:
        check_regex(regex)
    assert str(caught.value)
    assert matching(regex, NAMES) == set()


def test_an_expression_with_nested_repetitions_takes_linear_time() -> None:
    begun = time.process_time()
    assert matching("(a|a)*(a*)*b", ["a" * 249] * 50) == set()
    assert time.process_time() - begun < 1
