"""Files and directories that only the user of the broker can read: metadata has passwords and SCRAM keys, logs have records."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def make_directory(path: Path) -> None:
    """Make a directory that others cannot read, unless it exists; its missing parents get the usual mode. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def create(path: Path) -> None:
    """Create an empty file that others cannot read, unless it exists. Raises OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def restrict(path: Path) -> None:
    """Take the permissions of others away from a file or directory. Raises OSError."""
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OF_OTHERS)


def open_to_others(paths: Iterable[Path]) -> list[str]:
    """Return those of `paths` that other users of the machine can read or write, with their modes: "data (0755)"."""
    exposed = []
    for path in paths:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & _OF_OTHERS:
            exposed.append(f"{path} ({mode:04o})")
    return exposed
