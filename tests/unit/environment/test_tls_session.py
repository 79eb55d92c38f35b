"""TLS sessions without a socket: what they encrypt, and the memory that they keep afterwards."""

import ssl
from pathlib import Path

import pytest
import trustme

from ottla.environment.tls_session import TlsSession

SESSIONS, RESPONSE = 40, 1 << 20


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server and of a client that trusts it."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


def established(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> tuple[TlsSession, TlsSession]:
    """Return both ends of a connection after the handshake."""
    server = TlsSession(contexts[0], server_side=True)
    client = TlsSession(contexts[1], server_side=False, host="localhost")
    while not (server.is_established and client.is_established):
        for one, other in ((client, server), (server, client)):
            if not one.is_established:
                one.handshake()
            if encrypted := one.outgoing():
                other.feed(encrypted)
    return server, client


def received(session: TlsSession, encrypted: bytes, size: int) -> bytes:
    """Return what the other end has encrypted, taken in parts."""
    plain, buffer = bytearray(), bytearray(size)

    def take() -> None:
        count = session.read_into((buffer,))
        plain.extend(buffer[:count])

    session.feed_parts(memoryview(encrypted), take)
    return bytes(plain)


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 500_000])
def test_data_is_encrypted_and_decrypted(contexts: tuple[ssl.SSLContext, ssl.SSLContext], size: int) -> None:
    server, client = established(contexts)
    plain = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    encrypted = server.write(plain)
    assert server.outgoing() == b""
    assert received(client, encrypted, max(size, 1)) == plain


def resident_kilobytes() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4.096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is read from /proc")
def test_a_session_keeps_no_memory_of_a_large_response(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """A MemoryBIO that ever held a response holds its memory as long as the connection is open."""
    pairs = [established(contexts) for _ in range(SESSIONS)]
    received(pairs[0][1], pairs[0][0].write(bytes(RESPONSE)), RESPONSE)  # what the process needs once
    before = resident_kilobytes()
    for server, client in pairs:
        assert received(client, server.write(bytes(RESPONSE)), RESPONSE) == bytes(RESPONSE)
    assert (resident_kilobytes() - before) / SESSIONS < 150
