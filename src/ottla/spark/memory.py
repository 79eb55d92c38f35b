"""Memory of Spark's Python processes: what is freed stays for the next chunk.

A task moves chunks of some MB each. glibc returns memory of that size to the kernel when it is freed, and the next chunk
takes it again page by page, each page cleared first: a third of the time of reading values of 1 KB.
"""

import ctypes
from typing import Final

# <malloc.h>
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_KEPT_BYTES: Final = 64 << 20
# The largest that glibc takes: what is larger than this is still mapped for itself.
_MAPPED_BYTES: Final = 32 << 20

_kept = False


def keep_freed_memory() -> None:
    """Let this process keep up to 64 MB of freed memory for each of its threads. Nothing happens without glibc."""
    global _kept
    if _kept:
        return
    _kept = True
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS; Windows
        return
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
