"""setup.py: where nothing can be compiled the build says why in one line, or fails where that was demanded."""

import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SETUP = Path(__file__).parents[2] / "setup.py"


def cannot_compile(*_: Any, **__: Any) -> None:
    """Exit as mypyc does for code that it refuses."""
    raise SystemExit(1)


def without_mypy() -> None:
    return None


def refusing() -> ModuleType:
    module = ModuleType("mypyc.build")
    module.mypycify = cannot_compile  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize("compile_setting", ["", "0", "1"])
@pytest.mark.parametrize(
    ("mypyc", "why"), [(without_mypy, "mypy is not installed"), (refusing, "mypyc cannot compile")]
)
def test_an_installation_without_mypyc_warns_or_fails_by_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mypyc: Any, why: str, compile_setting: str
) -> None:
    built: list[Any] = []
    monkeypatch.setattr("setuptools.setup", lambda **keywords: built.append(keywords["ext_modules"]))
    monkeypatch.setitem(sys.modules, "mypyc.build", mypyc())
    monkeypatch.setenv("OTTLA_COMPILE", compile_setting)
    monkeypatch.chdir(SETUP.parent)
    if compile_setting == "1":
        with pytest.raises(SystemExit, match=f"cannot be compiled, as OTTLA_COMPILE=1 demands: {why}"):
            runpy.run_path(str(SETUP))
        return
    runpy.run_path(str(SETUP))
    assert built == [[]]
    output = capsys.readouterr().err
    assert output.startswith("WARNING: Ottla is installed without compiled modules: " + why) == (compile_setting == "")
    assert output.count("\n") == (compile_setting == "")


def test_types_of_an_installed_package_do_not_stop_the_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pyarrow 24 has types that lack most of its functions: Ottla could not be compiled beside it."""
    arguments: list[str] = []
    mypyc = ModuleType("mypyc.build")
    mypyc.mypycify = lambda options, **_: arguments.extend(options)  # type: ignore[attr-defined]
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    monkeypatch.setitem(sys.modules, "mypyc.build", mypyc)
    monkeypatch.delenv("OTTLA_COMPILE", raising=False)
    monkeypatch.chdir(SETUP.parent)
    runpy.run_path(str(SETUP))
    uses = tmp_path / "uses.py"
    uses.write_text("import click\n\nclick.not_in_its_types()\n")
    options = [option for option in arguments if not option.endswith(".py")]
    command = [sys.executable, "-m", "mypy", *options, "--cache-dir", str(tmp_path / "cache"), str(uses)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
