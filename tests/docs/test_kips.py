"""docs/kips.md: each KIP once, with a state, and as the table of configs says."""

import re
from pathlib import Path

import pytest

from ottla.metadata.configs.effects import without_effect

PAGE = Path(__file__).parents[2] / "docs" / "kips.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d", line)
]


def test_each_kip_has_one_row() -> None:
    numbers = [number for row in ROWS for number in row[0].split(", ")]
    assert len(numbers) > 60
    assert sorted(number for number in set(numbers) if numbers.count(number) > 1) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_state_is_yes_with_a_release_or_has_a_reason(row: list[str]) -> None:
    numbers, _, about, state, remarks = row
    assert re.fullmatch(r"\d+(, \d+)*", numbers)
    assert re.fullmatch(r"yes, \d+\.\d+\.\d+|partly|no|not concerned", state)
    assert about
    assert remarks or state.startswith("yes") or numbers.startswith(("750", "1058"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_configs_of_a_kip_have_an_effect_if_it_is_here(row: list[str]) -> None:
    names = set(re.findall(r"`([a-z.]+\.[a-z.]+)`", row[4]))
    assert without_effect(names) == (sorted(names) if row[3] == "no" else [])
