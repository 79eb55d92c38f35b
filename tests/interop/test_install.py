"""Installing as a user does: from the sdist, isolated, into an empty environment, on the oldest and newest Python at hand."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .apache_kafka import ROOT
from .pythons import supported_pythons


@pytest.mark.timeout(1800)
def test_the_sdist_is_compiled_in_an_isolated_build(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """It was installed interpreted, without a word: mypyc met missing stubs in the isolated build."""
    if not request.config.getoption("--interop"):
        pytest.skip("runs with --interop: it compiles for some minutes")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    build = [sys.executable, "-m", "build", "--sdist", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    pythons = supported_pythons()
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # which may have the sources
    for number, python in enumerate(dict.fromkeys((pythons[0], pythons[-1]))):
        environment = tmp_path / str(number)
        subprocess.run([python, "-m", "venv", str(environment)], check=True)
        install = [str(environment / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", str(sdist)]
        subprocess.run(install, env=clean, check=True)
        ottla = [str(environment / "bin/ottla"), "--version"]
        version = subprocess.run(ottla, env=clean, capture_output=True, text=True, check=True)
        assert "(compiled, " in version.stdout, (python, version.stdout)
