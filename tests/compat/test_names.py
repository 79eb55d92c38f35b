"""Every public name of confluent-kafka exists, with its parameters, or is in the table of docs/compat.md."""

import ctypes
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import confluent_kafka.cimpl
import pytest

import ottla.compat.confluent_kafka
from ottla.compat.confluent_kafka.admin import AdminClient
from ottla.compat.librdkafka.codes import CODES
from ottla.compat.librdkafka.properties import PROPERTIES

_PAGE = Path(__file__).parents[2] / "docs" / "compat.md"
MODULES = ["", "cimpl", "error", "serialization", "admin"]
CLASSES = ["Producer", "Consumer", "Message", "TopicPartition", "KafkaError", "Uuid"]


class _Description(ctypes.Structure):
    _fields_ = (("code", ctypes.c_int), ("name", ctypes.c_char_p), ("text", ctypes.c_char_p))


def library() -> ctypes.CDLL:
    """Return librdkafka, as confluent-kafka's wheel brings it."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka*"))
    if not found:
        pytest.skip("this confluent-kafka brings no librdkafka of its own")
    return ctypes.CDLL(str(found[0]))


def left_out() -> set[str]:
    """Return the names that docs/compat.md lists as missing."""
    return set(re.findall(r"^\| `([\w.]+)` \|", _PAGE.read_text("utf-8"), re.MULTILINE))


def public(module: Any) -> set[str]:
    """Return the public names of a module that are its own."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    return {
        name
        for name in names
        if not inspect.ismodule(getattr(module, name, None))
        and "typing" not in str(getattr(getattr(module, name, None), "__module__", ""))
    }


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_exists_or_is_documented(name: str) -> None:
    theirs = importlib.import_module(f"confluent_kafka.{name}".rstrip("."))
    ours = importlib.import_module(f"ottla.compat.confluent_kafka.{name}".rstrip("."))
    foreign = {"os", "warnings", "struct", "concurrent", "futures"}
    missing = {each for each in public(theirs) - foreign if not hasattr(ours, each)}
    prefix = f"{name}." if name else ""
    documented = left_out()
    assert {f"{prefix}{each}" for each in missing} - documented == set()


def test_no_name_is_documented_as_missing_that_exists() -> None:
    for path in left_out():
        module, _, name = path.rpartition(".")
        if module == "admin.AdminClient":
            found: Any = AdminClient
        else:
            found = importlib.import_module(f"ottla.compat.confluent_kafka.{module}".rstrip("."))
        assert not hasattr(found, name), path


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_methods_of_the_library(name: str) -> None:
    theirs, ours = getattr(confluent_kafka.cimpl, name), getattr(ottla.compat.confluent_kafka.cimpl, name)
    missing = [each for each in dir(theirs) if not each.startswith("__") and not hasattr(ours, each)]
    assert missing == []


def test_the_admin_client_has_its_methods_or_they_are_documented() -> None:
    theirs = {name for name in dir(confluent_kafka.admin.AdminClient) if not name.startswith("_")}
    missing = {f"admin.AdminClient.{name}" for name in theirs if not hasattr(AdminClient, name)}
    assert missing - left_out() == set()


def test_error_codes_are_those_of_the_library() -> None:
    loaded = library()
    rows, count = ctypes.POINTER(_Description)(), ctypes.c_size_t()
    loaded.rd_kafka_get_err_descs(ctypes.byref(rows), ctypes.byref(count))
    theirs = {row.code: (row.name.decode(), (row.text or b"").decode()) for row in rows[: count.value] if row.name}
    theirs = {code: row for code, row in theirs.items() if row[0] not in ("_BEGIN", "_END")}
    assert theirs == CODES


def test_properties_are_those_of_the_library(tmp_path: Path) -> None:
    loaded, libc = library(), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    stream = libc.fopen(str(tmp_path / "properties").encode(), b"w")
    loaded.rd_kafka_conf_properties_show(ctypes.c_void_p(stream))
    libc.fclose(ctypes.c_void_p(stream))
    rows = [line.split("|") for line in (tmp_path / "properties").read_text().splitlines() if line.count("|") >= 4]
    theirs: dict[str, tuple[str, str]] = {}
    for cells in rows:
        if "Type: " in cells[-1] and not cells[0].startswith(("Property", "-")):
            theirs.setdefault(cells[0].strip(), (cells[1].strip(), cells[2].strip().replace(" ", "")))
    assert set(theirs) == set(PROPERTIES)
    for name, (role, bounds) in theirs.items():
        row = PROPERTIES[name]
        assert row.role == role, name
        if row.kind != "string" and row.bounds:
            assert row.bounds == bounds, name
