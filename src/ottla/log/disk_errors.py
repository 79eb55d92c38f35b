"""Errors of file operations: which of them say that the disk of a log directory has failed.

    disk         what is on the disk is uncertain, or nothing can be added to it: the directory goes offline (KIP-112)
    shortage     the process or the machine is out of something for a moment; the request fails, a retry may succeed
    others       of one file or directory (missing, no permission, in the way), or of one call; the operation fails, its
                 partition may suffer, and its neighbours do not

Apache Kafka takes a directory offline for every IOException, EMFILE included.
"""

import errno
from typing import Final

_SHORTAGES: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EINTR, errno.EAGAIN, errno.EWOULDBLOCK)
)
# Not every system has all of them. The last two rows are those of network file systems and of volumes that were taken away.
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
    """Return whether `cause` passes by itself: too many open files, no memory, an interrupted call."""
    return cause.errno in _SHORTAGES


def is_disk_failure(cause: OSError) -> bool:
    """Return whether `cause` takes the log directory offline in which it was seen."""
    return cause.errno in _DISK
