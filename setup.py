"""What pyproject.toml cannot say: which modules mypyc compiles, where a compiler is there.

Optional throughout: without mypy, without a C compiler, or with OTTLA_COMPILE=0 the same files are installed and run
interpreted, with the same results.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools import setup

if TYPE_CHECKING:
    from setuptools import Extension

# The one list of hot modules. All of them go into one extension, so that calls between them are plain C calls.
COMPILED = [
    "src/ottla/broker/metrics/meter.py",
    "src/ottla/broker/metrics/traffic.py",
    "src/ottla/client/producer/accumulator.py",
    "src/ottla/coordinators/groups/committed_offset.py",
    "src/ottla/coordinators/groups/offset_rows.py",
    "src/ottla/observability/distribution.py",
    "src/ottla/protocol/frames.py",
    "src/ottla/protocol/plan.py",
    "src/ottla/protocol/wire.py",
    "src/ottla/records/batch.py",
    "src/ottla/records/columns.py",
    "src/ottla/records/digest.py",
    "src/ottla/records/keys.py",
    "src/ottla/records/partitioner.py",
    "src/ottla/records/record.py",
    "src/ottla/records/validation.py",
    "src/ottla/records/varints.py",
]


def extensions() -> "list[Extension]":
    """One extension with the hot modules, and a shim for each; none where they cannot or must not be compiled."""
    if os.environ.get("OTTLA_COMPILE") == "0":
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        return []
    paths = [path for path in COMPILED if Path(path).exists()]
    try:
        modules: list[Extension] = mypycify(paths, opt_level="3", group_name="ottla")
    except SystemExit:  # how mypyc ends after it has printed what it cannot compile
        return []
    for module in modules:
        # A failed C compilation is a warning then, and the .py files work alone.
        module.optional = True
    return modules


setup(ext_modules=extensions())
