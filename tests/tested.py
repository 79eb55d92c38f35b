"""The Ottla that is tested: the sources, or with OTTLA_TEST_TARGET=installed what is installed, as users run it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = str(ROOT / "src")
IS_INSTALLED: Final = os.environ.get("OTTLA_TEST_TARGET") == "installed"


def take_sources() -> None:
    """Let this process and those that it starts import the sources, unless the installed package is tested.

    pytest has loaded the installed one by then, as a plugin: what is imported is forgotten.
    """
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))  # processes that multiprocessing spawns import modules of the tests
    if IS_INSTALLED:
        return
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != SOURCES]
    os.environ["PYTHONPATH"] = os.pathsep.join([SOURCES, *others])
    if SOURCES in sys.path:
        sys.path.remove(SOURCES)
    sys.path.insert(0, SOURCES)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "ottla" and not str(getattr(module, "__file__", "")).startswith(SOURCES):
            del sys.modules[name]


def why_outdated() -> str | None:
    """Return in one line why the installed package must not be tested: it was made from other sources."""
    made_from = Path(sys.prefix, ".project")
    if not IS_INSTALLED or not made_from.exists():
        return None
    command = [sys.executable, "scripts/source-digest", "src", "setup.py", "pyproject.toml"]
    digest = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    if made_from.read_text(encoding="utf-8").partition("-")[0] == digest:
        return None
    return (
        "the installed Ottla is older than src: run scripts/setup, or leave OTTLA_TEST_TARGET out to test the sources"
    )
