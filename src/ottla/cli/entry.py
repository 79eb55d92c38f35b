"""Entry point of the process `ottla`.

Two things take a fifth of the time of a short command, and are left out: garbage collection while modules are loaded, where
nothing is garbage yet, and the end of the interpreter, which takes apart every module before the process ends anyway. All that
other code has registered for the end of the process (`atexit`, threads that are not daemons) has run before.
"""

import atexit
import contextlib
import gc
import os
import sys
from typing import Final

_statuses: Final[list[int]] = []
"""Exit status, once the command has ended."""


def run() -> None:
    """Run the command line of this process. Raises SystemExit."""
    gc.disable()  # the command enables it when it is loaded
    atexit.register(_end)  # the first one that is registered is called last
    from ottla.cli.main import main

    try:
        main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _statuses.append(ended.code or 0)
        raise


def _end() -> None:
    """End the process at once if its output can be written; otherwise Python says what it cannot write."""
    if not _statuses:
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_statuses[0])
