"""Process settings of Spark's Python workers: a worker runs many tasks.

Memory. A task allocates chunks of some MB. By default glibc returns freed memory of that size to the kernel, and the next chunk
causes page faults again: a third of the time of reading values of 1 KB.

Garbage collection. Spark runs a full collection after every task, which traverses all imported modules: 40 ms and more, longer
than a small task takes.
"""

import ctypes
import gc
from typing import Final

from pyspark import TaskContext

# <malloc.h>
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_KEPT_BYTES: Final = 64 << 20
# Maximum that glibc accepts: larger allocations still use mmap.
_MAPPED_BYTES: Final = 32 << 20

_tasks = 0


def begin_task() -> None:
    """Configure this process at the start of a task.

    The first task sets malloc options. The second one excludes all objects left by the first, such as modules and connections,
    from garbage collection (`gc.freeze`). Nothing is changed in a process that is not a Spark worker.
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
    """Keep up to 64 MB of freed memory per arena instead of returning it to the kernel (glibc only)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS; Windows
        return
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
