"""Record objects."""

import gc

import pytest

from ottla.records import record
from ottla.records.record import Origin, Record


def test_the_garbage_collector_does_not_look_at_compiled_records() -> None:
    """Collections took most of the time in which an application read small records one by one."""
    if record.__file__.endswith(".py"):
        pytest.skip("the modules are not compiled")
    read = Record(0, 0, b"key", b"value", [("name", b"value")], Origin("orders", 0))
    assert not gc.is_tracked(read)
    assert not gc.is_tracked(read.origin)
