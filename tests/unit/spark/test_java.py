"""Finding a Java: versions as programs say them, and the wrapper that leaves one argument out."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark import java


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21.0.8" 2025-07-15 LTS\nOpenJDK Runtime Environment', 21),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("bash: java: no such thing", 0),
        ("", 0),
    ],
)
def test_versions(text: str, version: int) -> None:
    assert java.parse_version(text) == version


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_programs_without_a_java_version_have_version_0(tmp_path: Path) -> None:
    assert java.version_of(tmp_path / "nothing") == 0
    assert java.version_of(program(tmp_path / "false", "exit 1")) == 0
    assert java.version_of(program(tmp_path / "java", "echo 'openjdk version \"21.0.1\"' >&2")) == 21


def test_java_home_comes_first_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = program(tmp_path / "new" / "bin" / "java", "echo 'openjdk version \"21.0.1\"' >&2")
    old = program(tmp_path / "old" / "bin" / "java", "echo 'openjdk version \"11.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert java.ensure_java() == new
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{new.parent}:/usr/bin:/bin")
    assert java.ensure_java() == new
    assert old.exists()


def test_the_wrapper_leaves_out_what_the_packaged_jre_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = program(tmp_path / "a jre" / "bin" / "java", 'for a; do echo "$a"; done')
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    home = java.wrapped_home(real)
    assert home == tmp_path / "environment" / "share" / "ottla" / "java"
    shown = subprocess.run(
        [home / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.splitlines() == ["-Xmx1g", "-cp", "a b"]
    assert java.wrapped_home(real) == home


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(java.JavaMissing, match="Spark needs Java 17 or newer and none was found"):
        java.ensure_java()
