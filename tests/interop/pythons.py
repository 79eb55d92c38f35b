"""Supported Pythons of this machine: `python -m tests.interop.pythons` prints their paths, the oldest version first."""

import glob
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

OLDEST: Final = (3, 11)


def supported_pythons() -> list[str]:
    """Return the newest Python of each supported minor version, of PATH and of pyenv, the oldest version first."""
    paths = [path for path in (shutil.which(f"python3.{minor}") for minor in range(OLDEST[1], 30)) if path]
    paths += glob.glob(str(Path.home() / ".pyenv/versions/*/bin/python3"))
    of_versions: dict[tuple[int, ...], str] = {}
    for path in [*paths, sys.executable]:
        asked = [path, "-c", "import sys, ensurepip; print(*sys.version_info[:3])"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            of_versions[tuple(map(int, answer.stdout.split()))] = path
    newest = {version[:2]: path for version, path in sorted(of_versions.items()) if version >= OLDEST}
    return list(newest.values())


if __name__ == "__main__":
    sys.stdout.writelines(f"{path}\n" for path in supported_pythons())
