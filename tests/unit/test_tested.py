"""Bare pytest tests the sources; the installed package is tested only if it was made from them."""

import subprocess
import sys
from pathlib import Path

import pytest

import ottla
from tests import tested


def test_the_imported_package_is_the_tested_one() -> None:
    completed = subprocess.run(
        [sys.executable, "-c", "import ottla; print(ottla.__file__)"], capture_output=True, text=True, check=True
    )
    for path in (ottla.__file__, completed.stdout):
        assert str(path).startswith(tested.SOURCES) != tested.IS_INSTALLED


@pytest.mark.parametrize("is_outdated", [True, False])
def test_an_installed_package_of_other_sources_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_outdated: bool
) -> None:
    command = [sys.executable, "scripts/source-digest", "src", "setup.py", "pyproject.toml"]
    digest = subprocess.run(command, cwd=tested.ROOT, capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / ".project").write_text(f"{'0' * 64 if is_outdated else digest}-1\n")
    monkeypatch.setattr(tested, "IS_INSTALLED", True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert (tested.why_outdated() is not None) == is_outdated
