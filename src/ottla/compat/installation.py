"""Ottla's module in the place of confluent_kafka, for programs that cannot be changed.

`install` adds a finder in front of the others: `import confluent_kafka` and its submodules then return the modules of
ottla.compat.confluent_kafka, each once under both names. A submodule that is missing here is an ImportError; the installed
confluent-kafka is never mixed in.
"""

import importlib
import importlib.abc
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ottla.compat.missing import reason_of

_NAME: Final = "confluent_kafka"
_HERE: Final = "ottla.compat.confluent_kafka"


class _Alias(importlib.abc.Loader):
    """Loader that returns a module under its other name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(_HERE + spec.name.removeprefix(_NAME))

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has run under its own name."""


class _Distribution(importlib.metadata.Distribution):
    """Metadata of confluent-kafka, for programs that ask for its version."""

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        version = importlib.import_module(_HERE).version()
        return f"Metadata-Version: 2.1\nName: confluent-kafka\nVersion: {version}\n"

    def locate_file(self, path: Any) -> Path:
        return Path(path)


class _Finder(importlib.metadata.DistributionFinder):
    """Finder of confluent_kafka's modules, and of its metadata."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != _NAME and not fullname.startswith(f"{_NAME}."):
            return None
        if importlib.util.find_spec(_HERE + fullname.removeprefix(_NAME)) is None:
            reason = reason_of(fullname.partition(".")[2]) or "see its page in the documentation"
            raise ModuleNotFoundError(f"{fullname} is not in ottla.compat: {reason}", name=fullname)
        return ModuleSpec(fullname, _Alias(), is_package=True)

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        name = None if context is None else context.name
        return [_Distribution()] if name is not None and name.replace("_", "-").lower() == "confluent-kafka" else []


def install() -> None:
    """Put ottla.compat.confluent_kafka in the place of confluent_kafka, for imports from now on.

    Raises ImportError if confluent_kafka itself was imported before.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if _NAME in sys.modules:
        raise ImportError("confluent_kafka is imported already: call ottla.compat.install() before")
    sys.meta_path.insert(0, _Finder())
