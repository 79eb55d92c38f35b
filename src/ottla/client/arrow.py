"""Optional import of pyarrow, with an error that names the extra to install."""

from importlib.util import find_spec

if find_spec("pyarrow") is None:
    raise ImportError("Arrow tables need pyarrow: pip install 'ottla[arrow]'")

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["pa", "pc"]
