"""Every row of the table of state kept for clients names a test that exists, and every API has its row in that of costs."""

import re
from pathlib import Path

import pytest

from ottla.broker.requests.handlers import SERVED
from ottla.protocol.api import APIS
from tests.docs.test_differences import ROOT, names_of_tests

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## State kept for clients")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (?!state \|)(.*) \|$", TABLE, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS)
def test_state_has_an_owner_a_limit_an_end_and_a_test(row: str) -> None:
    cells = row.split(" | ")
    assert len(cells) == 5, row
    assert all(cells)
    matched = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", cells[4])
    assert matched is not None, row
    assert matched[2] in names_of_tests(Path(ROOT / matched[1])), f"there is no {cells[4]}"


def test_the_table_is_not_empty() -> None:
    assert len(ROWS) > 15


def test_every_api_has_its_costs() -> None:
    table = PAGE.partition("## What one request may cost")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| [^|]+ \| ([\d.]+) \| [^|]+ \| [\d.]+ \| \d+, .+ \|$", table, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(APIS[key].name for key in SERVED)
    assert all(float(longest_ms) <= 50 for _, longest_ms in rows)
