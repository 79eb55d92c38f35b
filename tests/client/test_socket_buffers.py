"""Sizes of the buffers of sockets, as the system has them for an open connection: of clients send.buffer.bytes and
receive.buffer.bytes, of brokers socket.send.buffer.bytes.
"""

import socket
from typing import Any

import pytest

from ottla import Admin
from ottla.testing import EmbeddedBroker

SIZE = 50_000


def buffers(admin: Admin) -> tuple[int, int]:
    """SO_SNDBUF and SO_RCVBUF of the client's first connection."""
    stream: Any = admin._core.network.open_links()[0]._stream
    sock: socket.socket = stream._socket
    send = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    return send, sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


@pytest.mark.parametrize("option", ["send_buffer_bytes", "receive_buffer_bytes"])
def test_the_size_of_a_socket_buffer_is_set(bootstrap_servers: str, option: str) -> None:
    with (
        Admin(bootstrap_servers=bootstrap_servers) as default,
        Admin(bootstrap_servers=bootstrap_servers, **{option: SIZE}) as admin,
    ):
        default.describe_cluster()
        admin.describe_cluster()
        index = option == "receive_buffer_bytes"
        size = buffers(admin)[index]
        assert size in (SIZE, 2 * SIZE)  # Linux reports twice the size: it counts its own bookkeeping
        assert buffers(default)[index] != size


def test_the_default_leaves_the_buffers_to_the_system(bootstrap_servers: str) -> None:
    host, _, port = bootstrap_servers.rpartition(":")
    with Admin(bootstrap_servers=bootstrap_servers) as admin, socket.create_connection((host, int(port))) as plain:
        admin.describe_cluster()
        send = plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert buffers(admin)[0] == send


@pytest.mark.parametrize(("configs", "size"), [({"socket.send.buffer.bytes": f"{SIZE}"}, SIZE), ({}, 102_400)])
def test_the_size_of_a_brokers_send_buffers_is_set(configs: dict[str, str], size: int) -> None:
    with EmbeddedBroker(configs) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.describe_cluster()
        connection: Any = next(iter(broker.server.sockets.connections))
        assert connection._stream._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (size, 2 * size)
