"""The kept process of protoc: the same descriptors and errors as protoc that starts for each text, also after it has died."""

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("grpc_tools", reason="protoc comes with the extra: pip install 'ottla[schema]'")

from ottla.schemas import protobuf
from ottla.schemas.protoc import ProtocProcess
from ottla.schemas.registry import UnsupportedSchema

GOOD = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A { google.protobuf.Timestamp at = %d; }'
WRONG = [
    "message {",
    'syntax = "proto3"; import "../../etc/passwd";',
    'syntax = "proto3"; import "/etc/passwd";',
    'syntax = "proto3"; message A { B b = 1; }',
    'syntax = "proto3"; message A { int32 a = 0; }',
    "",
    "\0",
]


@pytest.fixture
def kept() -> Iterator[ProtocProcess]:
    process = ProtocProcess.acquire()
    yield process
    process.release()
    assert ProtocProcess.current() is None


def compile_text(text: str) -> bytes | str:
    """Return the descriptor that protoc makes of a text, or its error; without the cache."""
    try:
        return protobuf._descriptor_set.__wrapped__(text, ())
    except UnsupportedSchema as wrong:
        return str(wrong)


@pytest.mark.parametrize("text", [GOOD % 1, *WRONG])
def test_kept_process_answers_as_one_that_starts(text: str) -> None:
    alone = compile_text(text)
    process = ProtocProcess.acquire()
    try:
        for _ in range(2):
            assert compile_text(text) == alone
    finally:
        process.release()


@pytest.mark.usefixtures("kept")
def test_process_is_asked_with_descriptors_above_1023() -> None:
    """A broker with as many connections has them, and may serve a registry."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("this machine lets a process have few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        assert isinstance(compile_text(GOOD % 3), bytes)


def test_process_is_kept_and_replaced(kept: ProtocProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_text(GOOD % 1)
    first = kept._process
    assert first is not None
    compile_text(GOOD % 2)
    assert kept._process is first
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert compile_text(GOOD % 3) == "not a .proto file: protoc has ended, or took too long, without an answer"
    assert isinstance(compile_text(GOOD % 3), bytes)
    monkeypatch.setattr("ottla.schemas.protoc._MOST_COMPILED", 1)
    second = kept._process
    assert isinstance(compile_text(GOOD % 4), bytes)
    assert kept._process is not second


def test_process_that_does_not_answer_is_ended(kept: ProtocProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_text(GOOD % 1)
    process = kept._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    monkeypatch.setattr("ottla.schemas.protoc._TIMEOUT_S", 0.2)
    assert "took too long" in str(compile_text(GOOD % 2))
    assert process.poll() is not None


def test_several_threads_and_users(kept: ProtocProcess) -> None:
    other = ProtocProcess.acquire()
    assert other is kept
    made: dict[int, bytes | str] = {}

    def work(number: int) -> None:
        made[number] = compile_text(GOOD % number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 21)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.release()
    assert ProtocProcess.current() is kept
    assert len({bytes(text) for text in made.values() if isinstance(text, bytes)}) == 20
