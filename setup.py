"""What pyproject.toml cannot say: which modules mypyc compiles, where a compiler is there.

Optional throughout: without mypy, without a C compiler, or with OTTLA_COMPILE=0 the same files are installed and run
interpreted, with the same results.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools import setup
from setuptools.command.build_ext import build_ext

if TYPE_CHECKING:
    from setuptools import Extension

# The one list of hot modules. All of them go into one extension, so that calls between them are plain C calls.
COMPILED = [
    "src/ottla/protocol/frames.py",
    "src/ottla/protocol/wire.py",
    "src/ottla/records/batch.py",
    "src/ottla/records/columns.py",
    "src/ottla/records/partitioner.py",
    "src/ottla/records/record.py",
    "src/ottla/records/validation.py",
    "src/ottla/records/varints.py",
]


class OptionalBuildExt(build_ext):
    """A failed compilation is said, not fatal: the .py files work alone."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:  # noqa: BLE001  (a missing compiler shows in many ways)
            self.announce_interpreted(error)

    def build_extension(self, ext: "Extension") -> None:
        try:
            super().build_extension(ext)
        except Exception as error:  # noqa: BLE001
            self.announce_interpreted(error)
            self.extensions.remove(ext)

    def announce_interpreted(self, error: Exception) -> None:
        self.warn(f"not compiled, ottla will run interpreted: {error}")


def extensions() -> "list[Extension]":
    if os.environ.get("OTTLA_COMPILE") == "0":
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        return []
    paths = [path for path in COMPILED if Path(path).exists()]
    try:
        modules: list[Extension] = mypycify(["--strict", *paths], opt_level="3", group_name="ottla")
    except SystemExit as failure:  # mypyc's way to report errors
        print(f"warning: not compiled, ottla will run interpreted: {failure}")  # noqa: T201
        return []
    return modules


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuildExt})
