"""The table of docs/python.md for programs on kafka-python and aiokafka: every name in it exists."""

import re
import warnings
from pathlib import Path
from types import ModuleType

import pytest

import ottla
from ottla import aio
from ottla.client.config import ClientConfig
from ottla.client.errors import InvalidClientConfig

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of Python, for how aiokafka reads a file
    aiokafka = pytest.importorskip("aiokafka")
    kafka = pytest.importorskip("kafka")

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
TABLE = PAGE.read_text(encoding="utf-8").partition("## From kafka-python and aiokafka")[2].partition("What else")[0]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE.splitlines() if line.startswith("| `")]
ROWS += [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE.splitlines() if line.startswith("| |")]
NAME = r"`((?:ottla\.|aio\.)?[A-Z]\w+)(?:\.(\w+))?"


def has(module: ModuleType, name: str, method: str) -> bool:
    """Return whether a module has a class, and that the method."""
    return hasattr(getattr(module, name, None), method) if method else hasattr(module, name)


def test_the_table_has_rows_and_three_columns() -> None:
    assert len(ROWS) > 15
    assert {len(row) for row in ROWS} == {3}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2])
def test_names_of_other_clients_exist(row: list[str]) -> None:
    for module, cell in ((kafka, row[0]), (aiokafka, row[1])):
        assert [pair for pair in re.findall(NAME, cell) if not has(module, *pair)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2])
def test_names_of_this_client_exist_in_both_modules(row: list[str]) -> None:
    for name, method in re.findall(NAME, row[2]):
        if not name.startswith("aio."):
            assert has(ottla, name.removeprefix("ottla."), method), (name, method)
        if not name.startswith("ottla."):
            assert name == "Admin" or has(aio, name.removeprefix("aio."), method), (name, method)


def test_a_config_of_kafka_python_is_refused_with_the_name_of_kafka() -> None:
    with pytest.raises(InvalidClientConfig, match=r"ssl.truststore.location"):
        ClientConfig({"bootstrap.servers": "h:1", "ssl_cafile": "a"})
