"""The one table of errors by which a log directory is judged: which of them say that its disk has failed.

    shortage     the process or the machine is out of something for a moment; the request fails, a retry may succeed
    one file     one file or directory is missing or may not be used; its partition suffers, its neighbours do not
    disk         everything else (EIO, ENOSPC, EROFS, EDQUOT, EFBIG, ENODEV, ENXIO, ESTALE, EUCLEAN, ...): what is on the
                 medium is uncertain, or nothing can be added to it; the directory goes offline (KIP-112)

Apache Kafka takes a directory offline for every IOException, EMFILE included.
"""

import errno
from typing import Final

_SHORTAGES: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EINTR, errno.EAGAIN, errno.EWOULDBLOCK)
)
_ONE_FILE: Final = frozenset(
    (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
)


def is_shortage(cause: OSError) -> bool:
    """Return whether `cause` passes by itself: too many open files, no memory, an interrupted call."""
    return cause.errno in _SHORTAGES


def is_disk_failure(cause: OSError) -> bool:
    """Return whether `cause` takes the log directory offline in which it was seen."""
    return cause.errno not in _SHORTAGES and cause.errno not in _ONE_FILE
