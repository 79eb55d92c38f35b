"""A hostile broker, or an attacker between it and the client, lies about sizes and counts, and sends too much.

The client raises an error in bounded time and memory (kafka-python had CVE-2026-10142 and CVE-2026-10143).
"""

import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import pytest

from ottla.broker.requests.handlers import SERVED
from ottla.protocol import api
from ottla.protocol.codec import encode
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse

CLIENT: Final = """
import json, resource, sys, time
import ottla
began = time.monotonic()
limits = {"default_api_timeout_ms": 1500, "request_timeout_ms": 1000}
login = json.loads(sys.argv[2])
try:
    with ottla.Admin(bootstrap_servers=sys.argv[1], **limits, **login) as admin:
        outcome = f"answered {len(admin.list_topics())}"
except ottla.KafkaError as error:
    outcome = f"{type(error).__name__}: {error}"
seconds = time.monotonic() - began
try:  # what `getrusage` returns includes the memory of the parent before `exec`
    lines = open("/proc/self/status", encoding="ascii").read().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
except OSError:
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([outcome, seconds, kilobytes // 1024]))
"""
MOST_MB: Final = 700
"""Of the whole process: a frame of 95 MB is received into a growing buffer, and copied once."""
COUNT: Final = 6_500_001
Reply = Callable[[int, int, bytes, bytes], Iterator[bytes]]
"""Returns what the broker sends to a request: by its API, version, correlation id and bytes; piece by piece."""


def framed(correlation: bytes, body: bytes, *, flexible: bool = False) -> bytes:
    content = correlation + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(content)) + content


def versions(correlation: bytes) -> bytes:
    """An honest answer to ApiVersions 0."""
    keys = [
        ApiVersion(api_key=key, min_version=row.versions[0], max_version=row.versions[1]) for key, row in SERVED.items()
    ]
    return framed(correlation, encode(ApiVersionsResponse(error_code=0, api_keys=keys), 0))


def zeros(megabytes: int) -> Iterator[bytes]:
    return (bytes(1 << 20) for _ in range(megabytes))


def huge_size(key: int, version: int, correlation: bytes, request: bytes) -> Iterator[bytes]:
    yield b"\x7f\xff\xff\xff"
    yield from zeros(100)


def negative_size(key: int, version: int, correlation: bytes, request: bytes) -> Iterator[bytes]:
    yield b"\xff\xff\xff\xff" * 100


def large_api_versions(key: int, version: int, correlation: bytes, request: bytes) -> Iterator[bytes]:
    yield struct.pack(">i", 99 << 20) + correlation
    yield from zeros(99)


def count_of_versions(key: int, version: int, correlation: bytes, request: bytes) -> Iterator[bytes]:
    yield framed(correlation, b"\0\0\x7f\xff\xff\xff")


def unasked(key: int, version: int, correlation: bytes, request: bytes) -> Iterator[bytes]:
    for _ in range(1000):
        yield versions(b"\0\0\x11\x22")


def after_versions(attack: Reply) -> Reply:
    def reply(key: int, version: int, correlation: bytes, request: bytes) -> Iterator[bytes]:
        if key == api.API_VERSIONS:
            body = versions(correlation) if version == 0 else framed(correlation, b"\0\x23\0\0\0\0")
            yield body
        else:
            yield from attack(key, version, correlation, request)

    return reply


def count_of_brokers(key: int, version: int, correlation: bytes, request: bytes) -> Iterator[bytes]:
    yield framed(correlation, b"\0\0\0\0\xff\xff\xff\xff\x07" + bytes(50), flexible=True)


def many_brokers(key: int, version: int, correlation: bytes, request: bytes) -> Iterator[bytes]:
    """A true count; each has 14 bytes, of which an unknown tagged field is four."""
    count = bytes((0x80 | COUNT & 0x7F, 0x80 | COUNT >> 7 & 0x7F, 0x80 | COUNT >> 14 & 0x7F, COUNT >> 21))
    yield struct.pack(">i", 95 << 20) + correlation + b"\0" + bytes(4) + count
    yield from (b"\1" * (1 << 20) for _ in range(95))


def long_text(key: int, version: int, correlation: bytes, request: bytes) -> Iterator[bytes]:
    """One broker, whose host says that it has 2 GB."""
    yield framed(correlation, bytes(4) + b"\x02" + bytes(4) + b"\xff\xff\xff\xff\x07" + bytes(1000), flexible=True)


def nonce(request: bytes) -> bytes:
    """The client's nonce in its first message of SCRAM."""
    return request[request.index(b",r=") + 3 :].split(b"\0")[0]


def scram_iterations(key: int, version: int, correlation: bytes, request: bytes) -> Iterator[bytes]:
    if key == api.SASL_HANDSHAKE:
        yield framed(correlation, struct.pack(">hih", 0, 1, 13) + b"SCRAM-SHA-256")
    else:
        first = b"r=" + nonce(request) + b"x,s=c2FsdHNhbHQ=,i=2000000000"
        yield framed(correlation, encode(SaslAuthenticateResponse(auth_bytes=first), version), flexible=version >= 2)


ATTACKS: Final[dict[str, tuple[Reply, dict[str, str]]]] = {
    "size of 2 GB": (huge_size, {}),
    "negative size": (negative_size, {}),
    "99 MB of ApiVersions": (large_api_versions, {}),
    "count of versions": (count_of_versions, {}),
    "answers that nothing asked for": (unasked, {}),
    "size of 2 GB after the login": (after_versions(huge_size), {}),
    "count of brokers": (after_versions(count_of_brokers), {}),
    "6.5 million brokers": (after_versions(many_brokers), {}),
    "length of a text": (after_versions(long_text), {}),
    "two thousand million iterations of SCRAM": (
        after_versions(scram_iterations),
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "alice",
            "sasl_password": "secret",
        },
    ),
}


class HostileBroker:
    """Answers every request of every connection by `reply`."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as stream:
            connection.settimeout(20)
            while len(head := stream.read(4)) == 4:
                frame = stream.read(int.from_bytes(head, "big"))
                key, version = struct.unpack(">hh", frame[:4])
                for piece in self._reply(key, version, frame[4:8], frame):
                    connection.sendall(piece)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_client_survives_a_hostile_broker(attack: str) -> None:
    reply, login = ATTACKS[attack]
    broker = HostileBroker(reply)
    try:
        command = [sys.executable, "-c", CLIENT, f"127.0.0.1:{broker.port}", json.dumps(login)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        broker.close()
    assert done.returncode == 0, done.stderr
    outcome, seconds, megabytes = json.loads(done.stdout)
    assert not outcome.startswith("answered"), outcome
    assert seconds < 10
    assert megabytes < MOST_MB
    assert "Traceback" not in done.stderr
