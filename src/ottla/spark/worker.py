"""Settings of Spark's Python workers that make tasks cheaper: a worker is kept for many tasks.

Memory. A task moves chunks of some MB each. glibc returns memory of that size to the kernel when it is freed, and the next
chunk takes it again page by page, each page cleared first: a third of the time of reading values of 1 KB.

Garbage. Spark collects after every task, before the worker takes the next one, and each time walks over all that was ever
imported: 40 ms and more, longer than a small task takes.
"""

import ctypes
import gc
from typing import Final

from pyspark import TaskContext

# <malloc.h>
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_KEPT_BYTES: Final = 64 << 20
# The largest that glibc takes: what is larger than this is still mapped for itself.
_MAPPED_BYTES: Final = 32 << 20

_tasks = 0


def begin_task() -> None:
    """Configure this process for tasks, when one begins.

    The first task keeps freed memory. The second one excludes what the first has left behind, imports and connections, from
    garbage collection for good (`gc.freeze`). A process that reads without being a worker of Spark's is not changed: it is
    the user's own.
    """
    global _tasks
    if TaskContext.get() is None:
        return
    _tasks += 1
    if _tasks == 1:
        keep_freed_memory()
    elif _tasks == 2:
        gc.freeze()


def keep_freed_memory() -> None:
    """Let this process keep up to 64 MB of freed memory for each of its threads. Nothing happens without glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS; Windows
        return
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
