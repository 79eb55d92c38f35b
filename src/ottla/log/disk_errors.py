"""Classification of errors of file operations: failed disk, shortage of resources, others.

    disk         the content of the disk is uncertain, or it cannot be written: the directory goes offline (KIP-112)
    shortage     the process or machine lacks a resource temporarily; the request fails, a retry may succeed
    others       errors of one file or directory (missing, no permission, exists already), or of one call; the operation
                 fails, and other partitions are not affected

Apache Kafka takes a directory offline for every IOException, EMFILE included.
"""

import errno
from typing import Final

_SHORTAGES: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EINTR, errno.EAGAIN, errno.EWOULDBLOCK)
)
# Not every system has all of them. The last two rows are for network file systems and removed volumes.
_DISK: Final = frozenset(
    getattr(errno, name)
    for name in (
        *("EIO", "ENOSPC", "EROFS", "EDQUOT", "EFBIG", "EUCLEAN", "EBADMSG"),
        *("ENODEV", "ENXIO", "ENOMEDIUM", "EMEDIUMTYPE", "ESHUTDOWN"),
        *("ESTALE", "EREMOTEIO", "ENOTCONN", "ENOLINK", "ETIMEDOUT", "EHOSTDOWN"),
    )
    if hasattr(errno, name)
)


def is_shortage(cause: OSError) -> bool:
    """Return True for a temporary error: too many open files, no memory, an interrupted call."""
    return cause.errno in _SHORTAGES


def is_passing(cause: BaseException) -> bool:
    """Return True for a temporary error of an operation on a log, or for the error of the log that it has caused."""
    origin = cause if isinstance(cause, OSError) else cause.__cause__
    return isinstance(origin, OSError) and is_shortage(origin)


def is_disk_failure(cause: OSError) -> bool:
    """Return True if an error takes its log directory offline."""
    return cause.errno in _DISK
