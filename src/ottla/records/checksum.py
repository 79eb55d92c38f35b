"""CRC-32C checksums of record batches and snapshots, computed by the extension module of the package crc32c.

Importing the package takes 20 ms, a tenth of the start of a broker: it looks up its own version among all installed
distributions. So the extension module is loaded without the package that contains it, under its usual name: a later import of
the package finds it. Where the package has another layout, it is imported as usual.
"""

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Final

_EXTENSION: Final = "crc32c._crc32c"


def _extension() -> ModuleType:
    loaded = sys.modules.get(_EXTENSION)
    if loaded is not None:
        return loaded
    package = PathFinder.find_spec("crc32c")
    locations = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec(_EXTENSION, list(locations)) if locations else None
    if spec is None or spec.loader is None:
        import crc32c

        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_EXTENSION] = module
    return module


crc32c: Final[Callable[..., int]] = _extension().crc32c
"""Return the CRC-32C of a buffer; a second argument is the checksum of the bytes before it."""
