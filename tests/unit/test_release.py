"""Conditions of a release: one version, its tag and its section; systems that are not supported say so."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ottla

ROOT = Path(__file__).parents[2]


def release(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "scripts" / "release", *words], capture_output=True, text=True, check=False)


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ottla.version.VERSION"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", ottla.__version__)
    assert re.search(
        r"^## (Unreleased|" + re.escape(ottla.__version__) + r"\b)", (ROOT / "CHANGELOG.md").read_text(), re.M
    )


def test_a_tag_of_another_version_is_refused() -> None:
    done = release("--tag", "v99.0.0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"release: the tag is v99.0.0, and VERSION of src/ottla/version.py is {ottla.__version__}\n"


def test_a_release_without_a_section_of_the_changelog_is_refused() -> None:
    if f"## {ottla.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        pytest.skip("this version is released: it has its section")
    done = release("--tag", f"v{ottla.__version__}")
    assert done.returncode == 1
    assert done.stderr == f'release: CHANGELOG.md has no section "## {ottla.__version__}"\n'


@pytest.mark.parametrize("module", ["ottla.client.blocking", "ottla.broker.lifecycle"])
def test_windows_is_refused_in_one_line(module: str) -> None:
    code = (
        f"import sys\nsys.platform = 'win32'\ntry:\n    import {module}\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"Ottla's (client|broker) needs Linux or macOS .*: on Windows run it in WSL\n", done.stdout)
