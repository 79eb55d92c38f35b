"""The other implementations: where they are, how they are started, what they are asked.

An oracle is a process that reads a message of one version and writes it again (the frames are in java/MessageOracle.java).
`scripts/oracles` puts what they need into the cache; what is not there is skipped, with the reason.
"""

import json
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

HERE: Final = Path(__file__).parent
CACHE: Final = Path(os.environ.get("OTTLA_ORACLES_CACHE") or Path.home() / ".cache" / "ottla-oracles")
REFERENCE: Final = Path(os.environ.get("OTTLA_REFERENCE_CACHE") or Path.home() / ".cache" / "ottla-reference")

KIO: Final = ("kio 0.6.5", "kio 0.5.0")
# 4.0.0 is asked about what only 4.0 had (coverage.py).
KAFKA: Final = ("Kafka 4.4.0", "Kafka 3.9.1", "Kafka 4.0.0")
ORACLES: Final = KAFKA + KIO


class Missing(Exception):
    """An oracle is not set up; the message says what it lacks."""


class Answer(NamedTuple):
    """The result of an oracle for a message.

    refused  why the values cannot travel in the version to write; the rest is empty then
    data     the message as the oracle writes it
    values   the values as the oracle read them, in its own form
    """

    refused: str
    data: bytes
    values: Any


class Failed(Exception):
    """An oracle could not read or write a message at all."""


class Peer:
    """A process that answers for one or more oracles."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, label: str, read: int, write: int, data: bytes) -> Answer:
        """Let `label` read `data` in version `read` and write it in version `write`. Raises Failed."""
        source, target = self._process.stdout, self._process.stdin
        assert source is not None
        assert target is not None
        name = label.encode()
        body = struct.pack(">h", len(name)) + name + struct.pack(">hh", read, write) + data
        target.write(struct.pack(">i", len(body)) + body)
        target.flush()
        answer = _exactly(source, int.from_bytes(_exactly(source, 4), "big"))
        size = int.from_bytes(answer[1:5], "big")
        text = answer[5 + size :].decode()
        if answer[0] == 2:
            raise Failed(text)
        if answer[0] == 1:
            return Answer(text, b"", None)
        return Answer("", answer[5 : 5 + size], json.loads(text))

    def close(self) -> None:
        self._process.communicate()


def _exactly(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise Failed("the oracle's process ended")
    return data


class Oracle:
    """One implementation of the protocol in one release."""

    def __init__(self, name: str, peer: Peer) -> None:
        self.name = name
        self._peer = peer

    def versions(self, message: str) -> tuple[int, int] | None:
        """First and last version that it knows of `message`, both inclusive."""
        span = self._peer.ask(f"{self.name}/{message}", -1, -1, b"").values
        return None if span is None else (span[0], span[1])

    def rewrite(self, message: str, read: int, write: int, data: bytes) -> Answer:
        return self._peer.ask(f"{self.name}/{message}", read, write, data)


class Peers:
    """The processes, each started when it is first needed."""

    def __init__(self) -> None:
        self._kio: dict[str, Peer] = {}
        self._java: Peer | None = None

    def oracle(self, name: str) -> Oracle:
        """Raises Missing."""
        return Oracle(name, self._java_peer(name) if name in KAFKA else self._kio_peer(name))

    def close(self) -> None:
        for peer in self._kio.values():
            peer.close()
        if self._java is not None:
            self._java.close()

    def _kio_peer(self, name: str) -> Peer:
        python = CACHE / name.replace(" ", "-") / "bin" / "python"
        if not (python.parent.parent / ".complete").exists():
            raise Missing(f"no {name} in {CACHE}: run scripts/oracles")
        if name not in self._kio:
            self._kio[name] = Peer([str(python), str(HERE / "kio_peer.py")])
        return self._kio[name]

    def _java_peer(self, name: str) -> Peer:
        """One JVM for all releases."""
        folders = {release: REFERENCE / release.lower().replace(" ", "-") for release in KAFKA}
        if not (folders[name] / ".complete").exists():
            raise Missing(
                f"no jars of {name} in {REFERENCE}: run KAFKA_VERSION={name.split()[1]} bench/reference/kafka jars"
            )
        if self._java is None:
            there = [f"{release}={folder}" for release, folder in folders.items() if (folder / ".complete").exists()]
            self._java = Peer([*_java_program(), *there])
        return self._java


def _java_program() -> list[str]:
    """Return the command that runs MessageOracle, compiled again when its source has changed."""
    java, javac = shutil.which("java"), shutil.which("javac")
    if java is None or javac is None:
        raise Missing("no java and javac on the PATH")
    source = HERE / "java" / "MessageOracle.java"
    classes = CACHE / "java"
    compiled = classes / "MessageOracle.class"
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        classes.mkdir(parents=True, exist_ok=True)
        subprocess.run([javac, "-d", str(classes), str(source)], check=True)
    return [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(classes), "MessageOracle"]
