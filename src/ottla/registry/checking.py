"""Checks of schemas beside the event loop: small ones in threads, others in a process that is kept.

Python runs one thread at a time. Four checks of 1 MiB each in threads let every client of the process wait for 100 ms and more:
of the registry, and of a broker around it. A check is small if its texts are, and if it ends within a few thousand steps of
its budget; else it begins again in the process, where checks follow each other.

    this process  -- length, function and arguments -->  python -m ottla.registry.checking
                  <-- length, whether it has returned, result or exception

Messages are pickled: both ends are of one program.
"""

import asyncio
import os
import pickle
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import IO, Any, Final, TypeVar

from ottla.registry.refusals import INVALID_SCHEMA, Refusal
from ottla.schemas.budget import Allowance

T = TypeVar("T")
_THREADS: Final = 2
_WAITING_THREADS: Final = 4
_MOST_CHARACTERS: Final = 16_000
_MOST_STEPS: Final = 2_000
"""Steps of a comparison in a thread: about 15 ms."""
_TIMEOUT_S: Final = 20.0
_MOST_CALLS: Final = 1000
"""Calls of a process, which is replaced then: what libraries do not free is bounded."""
_NICENESS: Final = 5
_LENGTH: Final = 8


class Checking:
    """Threads and the process in which a registry checks schemas."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "ottla-schemas")
        self._waiting = ThreadPoolExecutor(_WAITING_THREADS, "ottla-large-schemas")
        self._process = CheckProcess()

    async def run(self, check: "partial[T]") -> T:
        """Return the result of a function of a module and its arguments. Raises what it raises."""
        loop = asyncio.get_running_loop()
        if _size((check.args, check.keywords)) <= _MOST_CHARACTERS:
            allowance = Allowance(_MOST_STEPS)
            try:
                result = await loop.run_in_executor(self._threads, allowance.run, check)
            except Exception:
                if not allowance.is_exceeded:
                    raise
            else:
                if not allowance.is_exceeded:
                    return result
        return await loop.run_in_executor(self._waiting, self._process.call, check)

    def close(self) -> None:
        """End; checks that are under way fail."""
        for executor in (self._threads, self._waiting):
            executor.shutdown(wait=False, cancel_futures=True)
        self._process.end()


def _size(value: Any) -> int:
    """Return the number of characters in all texts of arguments."""
    if isinstance(value, str):
        return len(value)
    parts: Iterable[Any] = value.values() if isinstance(value, dict) else value
    return sum(map(_size, parts)) if isinstance(value, dict | list | tuple) else 0


class CheckProcess:
    """The process; it starts with the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._calls = 0
        self._is_ended = False

    def call(self, check: "partial[T]") -> T:
        """Run a check in the process, and return its result. Blocks. Raises what it raises, Refusal 42201."""
        message = pickle.dumps(check)
        with self._lock:
            if self._calls >= _MOST_CALLS:
                self._kill()
            process = self._process or self._start()
            self._calls += 1
            assert process.stdin is not None
            assert process.stdout is not None
            answer = None
            with suppress(OSError):
                _send(process.stdin, message)
                with selectors.DefaultSelector() as selector:  # select() knows no descriptor above 1,023
                    selector.register(process.stdout, selectors.EVENT_READ)
                    answer = _receive(process.stdout) if selector.select(_TIMEOUT_S) else None
            if answer is None:
                self._kill()
                raise Refusal(INVALID_SCHEMA, "The schemas are too large to check them")
        has_returned, result = pickle.loads(answer)
        if not has_returned:
            raise result
        returned: T = result
        return returned

    def end(self) -> None:
        """End the process, and what it does."""
        self._is_ended = True
        process = self._process
        if process is not None:
            process.kill()  # first: a call that waits for it holds the lock
        with self._lock:
            self._kill()

    def _start(self) -> "subprocess.Popen[bytes]":
        if self._is_ended:
            raise Refusal(503, "The registry has stopped")
        self._calls = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ottla.registry.checking"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which ends the other one
        )
        return self._process

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()  # it keeps nothing
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(_LENGTH, "big") + message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """Return the next message, None at the end."""
    length = int.from_bytes(pipe.read(_LENGTH), "big")
    message = pipe.read(length) if length else b""
    return message if length and len(message) == length else None


def _outcome(check: Callable[[], Any]) -> tuple[bool, Any]:
    try:
        return True, check()
    except Exception as failed:  # noqa: BLE001  (it is raised where the call came from)
        return False, failed


def _serve() -> None:
    """Run what comes on standard input, until it ends."""
    from ottla.schemas.protoc import ProtocProcess

    os.nice(_NICENESS)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    protoc = ProtocProcess.acquire()
    try:
        while (message := _receive(sys.stdin.buffer)) is not None:
            _send(answers, pickle.dumps(_outcome(pickle.loads(message))))
    except OSError:  # it has ended
        pass
    finally:
        protoc.release()


if __name__ == "__main__":
    _serve()
