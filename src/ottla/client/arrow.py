"""Optional import of pyarrow, with an error that names the extra to install."""

from importlib.util import find_spec

from ottla.extras import install_command

if find_spec("pyarrow") is None:
    raise ImportError(f"Arrow tables need pyarrow: {install_command('arrow')}")

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["pa", "pc"]
