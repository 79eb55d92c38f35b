"""Installing as a user does: from the sdist, isolated, into an empty environment, on the oldest and newest Python at hand."""

import glob
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .apache_kafka import ROOT

OLDEST = (3, 11)


def pythons() -> list[str]:
    """The oldest and the newest supported Python of this machine."""
    found: dict[tuple[int, ...], str] = {}
    names = [f"python3.{minor}" for minor in range(OLDEST[1], 30)]
    paths = [path for path in map(shutil.which, names) if path]
    paths += glob.glob(str(Path.home() / ".pyenv/versions/*/bin/python3"))
    for path in [*paths, sys.executable]:
        asked = [path, "-c", "import sys, ensurepip; print(*sys.version_info[:3])"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found[tuple(map(int, done.stdout.split()))] = path
    supported = sorted(version for version in found if version[:2] >= OLDEST)
    return [found[version] for version in dict.fromkeys((supported[0], supported[-1]))]


def test_the_sdist_is_compiled_in_an_isolated_build(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """It was installed interpreted, without a word: mypyc met missing stubs in the isolated build."""
    if not request.config.getoption("--interop"):
        pytest.skip("runs with --interop: it compiles for some minutes")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    build = [sys.executable, "-m", "build", "--sdist", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    for number, python in enumerate(pythons()):
        environment = tmp_path / str(number)
        subprocess.run([python, "-m", "venv", str(environment)], check=True)
        install = [str(environment / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", str(sdist)]
        subprocess.run(install, check=True)
        version = subprocess.run([environment / "bin/ottla", "--version"], capture_output=True, text=True, check=True)
        assert "(compiled, " in version.stdout, (python, version.stdout)
