"""Environments of the programs: jars, wheels, modules, each fetched once into a folder under ~/.cache/ottla-interop.

A folder's name holds the digest of everything that it was made from, so that a changed program or version makes a new one.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CACHE = Path(os.environ.get("OTTLA_INTEROP_CACHE", Path.home() / ".cache" / "ottla-interop"))
_TIME_TO_FETCH_S = 600


class Unavailable(Exception):
    """A toolchain or a download is missing: the reason is shown in the table."""


class Environment(Protocol):
    """The environment of one program."""

    def prepare(self) -> list[str]:
        """Fetch and compile what is not yet there; the command that the program's arguments follow.

        Raises Unavailable.
        """


def _needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not installed")


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIME_TO_FETCH_S
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} took longer than {_TIME_TO_FETCH_S} s") from None
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise Unavailable(f"{Path(command[0]).name} {command[1]} failed")


def _folder(kind: str, parts: list[str]) -> Path:
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    return CACHE / f"{kind}-{digest}"


def _texts(files: list[Path]) -> list[str]:
    return [file.read_text(encoding="utf-8") for file in files]


_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>interop</groupId><artifactId>interop</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
# Kafka 0.8.0 and ZooKeeper ask for parts of log4j 1.2.15 that were never published.
_NEVER_PUBLISHED = ["com.sun.jdmk:jmxtools", "com.sun.jmx:jmxri", "javax.jms:jms", "javax.mail:mail"]


def _dependency(coordinate: str) -> str:
    group, artifact, version = coordinate.split(":")
    excluded = "".join(
        f"<exclusion><groupId>{entry.split(':')[0]}</groupId><artifactId>{entry.split(':')[1]}</artifactId></exclusion>"
        for entry in _NEVER_PUBLISHED
    )
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"<exclusions>{excluded}</exclusions></dependency>"
    )


# The snappy of Kafka 0.8.0 defines its classes through a protected method of the class loader.
_JVM = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "--add-opens", "java.base/java.lang=ALL-UNNAMED"]


@dataclass(frozen=True)
class Jars:
    """Java sources compiled against released jars; the first source has `main`."""

    coordinates: tuple[str, ...]
    sources: tuple[str, ...]

    def prepare(self) -> list[str]:
        _needs("java", "javac", "mvn")
        pom = _POM.format(dependencies="".join(map(_dependency, self.coordinates)))
        jars = _folder("jars", [pom])
        if not (jars / ".complete").exists():
            jars.mkdir(parents=True, exist_ok=True)
            (jars / "pom.xml").write_text(pom, encoding="utf-8")
            _run(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], jars)
            (jars / ".complete").touch()
        sources = [HERE / "java" / f"{name}.java" for name in self.sources]
        classes = _folder("classes", [pom, *_texts(sources)])
        if not (classes / ".complete").exists():
            classes.mkdir(parents=True, exist_ok=True)
            _run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), *map(str, sources)], classes)
            (classes / ".complete").touch()
        return ["java", *_JVM, "-cp", f"{classes}:{jars}/*", self.sources[0]]


@dataclass(frozen=True)
class Wheels:
    """A Python program with a few packages in an environment of its own."""

    requirements: tuple[str, ...]
    module: str

    def prepare(self) -> list[str]:
        folder = _folder("wheels", [sys.version, *self.requirements])
        if not (folder / ".complete").exists():
            _run([sys.executable, "-m", "venv", "--clear", str(folder)], ROOT)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run([*pip, *self.requirements], ROOT)
            (folder / ".complete").touch()
        return [str(folder / "bin" / "python"), "-m", f"tests.interop.clients.python.{self.module}"]


@dataclass(frozen=True)
class Locked:
    """A Python program with the versions of requirements/dev-all.txt: it runs where this runs."""

    module: str

    def prepare(self) -> list[str]:
        return [sys.executable, "-m", f"tests.interop.clients.python.{self.module}"]


@dataclass(frozen=True)
class GoProgram:
    """A program of the module go/: a folder with the package main."""

    folder: str

    def prepare(self) -> list[str]:
        _needs("go")
        module = HERE / "go"
        sources = [
            module / "go.mod",
            module / "go.sum",
            *module.glob("contract/*.go"),
            *module.glob(f"{self.folder}/*.go"),
        ]
        binary = _folder(f"go-{self.folder}", _texts(sorted(sources)))
        if not binary.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            _run(["go", "build", "-o", str(binary), f"./{self.folder}"], module)
        return [str(binary)]


@dataclass(frozen=True)
class RustProgram:
    """A binary of the package rust/: Cargo.lock names exact versions."""

    binary: str

    def prepare(self) -> list[str]:
        _needs("cargo")
        package = HERE / "rust"
        sources = [package / "Cargo.toml", package / "Cargo.lock", *sorted(package.glob("src/**/*.rs"))]
        target = _folder("rust", _texts(sources))
        binary = target / "release" / self.binary
        if not binary.exists():
            _run(["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", str(target)], package)
        return [str(binary)]


@dataclass(frozen=True)
class NodePackage:
    """A program of the folder node/: package.json names exact versions."""

    program: str = "main.js"

    def prepare(self) -> list[str]:
        _needs("node", "npm")
        sources = sorted((HERE / "node").iterdir())
        folder = _folder("node", _texts(sources))
        if not (folder / ".complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            for source in sources:
                shutil.copy(source, folder)
            _run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"], folder)
            (folder / ".complete").touch()
        return ["node", str(folder / self.program)]
