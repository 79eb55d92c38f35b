"""Small files that are named by configs, which clients with the permission may change: certificates and keys."""

import os
import stat
from errno import EFBIG, EINVAL
from typing import Final

LARGEST: Final = 1 << 20


def read_small_file(path: str) -> bytes:
    """Return the contents of a regular file of 1 MB at most. Raises OSError; it does not wait for a pipe or a device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(EINVAL, "not a regular file", path)
        if status.st_size > LARGEST:
            raise OSError(EFBIG, f"larger than {LARGEST} bytes", path)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(LARGEST)
    finally:
        os.close(descriptor)
