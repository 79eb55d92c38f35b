"""protoc in a process that is kept: a compilation takes half a millisecond there, and 45 ms where Python starts for each.

Not in this process: protoc holds the interpreter, writes errors to the standard error of the process, and could end it on a
text that was made for that. A service that compiles much acquires the process; without it each compilation starts protoc.

    this process  -- {"folder": ..., "main": ..., "made": ...} -->  python -m ottla.schemas.protoc
                  <-- exit code of protoc, a line; its errors are in the file "errors" of the folder
"""

import json
import os
import selectors
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

_TIMEOUT_S: Final = 10.0
_MOST_COMPILED: Final = 1000
"""Compilations of a process, which is replaced then: what protoc does not free is bounded."""
ERRORS: Final = "errors"


class ProtocDied(Exception):
    """The process has ended in a compilation, or took too long."""


class ProtocProcess:
    """The process; it starts with the first compilation. `acquire` and `release` count its users."""

    _shared: "ClassVar[ProtocProcess | None]" = None
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._users = 0
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._compiled = 0
        self._owner = os.getpid()

    @classmethod
    def acquire(cls) -> "ProtocProcess":
        """Add a user."""
        with cls._guard:
            if cls._shared is None or cls._shared._owner != os.getpid():
                cls._shared = ProtocProcess()
            cls._shared._users += 1
            return cls._shared

    @classmethod
    def current(cls) -> "ProtocProcess | None":
        """Return the process if it has users, None in a forked process."""
        shared = cls._shared
        return shared if shared is not None and shared._owner == os.getpid() else None

    def release(self) -> None:
        """Remove a user; the last one ends the process."""
        with self._guard:
            self._users -= 1
            if self._users:
                return
            if ProtocProcess._shared is self:
                ProtocProcess._shared = None
        with self._lock:
            self._end()

    def compile(self, folder: Path, main: str, made: Path) -> int:
        """Compile a file and its imports into a descriptor set; return the exit code of protoc. Raises ProtocDied."""
        request = json.dumps({"folder": str(folder), "main": main, "made": str(made)}).encode() + b"\n"
        with self._lock:
            if self._compiled >= _MOST_COMPILED:
                self._end()
            process = self._process or self._start()
            self._compiled += 1
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(request)
                process.stdin.flush()
                with selectors.DefaultSelector() as selector:  # select() knows no descriptor above 1,023
                    selector.register(process.stdout, selectors.EVENT_READ)
                    line = process.stdout.readline() if selector.select(_TIMEOUT_S) else b""
            except OSError:
                line = b""
            if not line:
                self._end()
                raise ProtocDied
            return int(line)

    def _start(self) -> "subprocess.Popen[bytes]":
        self._compiled = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ottla.schemas.protoc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which ends the other one
        )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()  # it keeps nothing
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _serve() -> None:
    """Compile what comes on standard input, until it ends."""
    import grpc_tools
    from grpc_tools import protoc

    own_files = Path(grpc_tools.__file__).parent / "_proto"
    nothing = os.open(os.devnull, os.O_WRONLY)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        folder = Path(request["folder"])
        with (folder / ERRORS).open("wb") as errors:
            os.dup2(errors.fileno(), 2)
        words = ["protoc", f"-I{folder}", f"-I{own_files}", "--include_imports"]
        code = protoc.main([*words, f"--descriptor_set_out={request['made']}", request["main"]])
        os.dup2(nothing, 2)  # the file of errors is complete
        sys.stdout.buffer.write(b"%d\n" % code)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
