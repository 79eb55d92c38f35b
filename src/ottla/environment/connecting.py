"""Opening of a TCP connection on an asyncio event loop.

Interpreted, unlike its caller: asyncio raises what went wrong by `throw`, which a compiled coroutine hands on with three
arguments, and Python 3.12 and newer warn of that; where warnings are errors, the warning would take the place of the error.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.environment import Address


async def connect(
    loop: asyncio.AbstractEventLoop,
    address: Address,
    buffers: Mapping[int, int],
    resolved: Callable[[], None],
    connected: Callable[[socket.socket], None],
    lost: Callable[[str], None],
) -> None:
    """Try all addresses of a host name, in the resolver's order.

    buffers    sizes of the socket's buffers in bytes by option; -1 for that of the system
    resolved   called when the host name has an address
    connected  gets the socket
    lost       gets the reason in place of it
    """
    reason = "the name stands for no address"
    try:
        candidates = await _resolve(loop, address)
    except OSError as unresolved:
        lost(f"cannot be resolved: {unresolved.strerror or unresolved}")
        return
    resolved()
    for family, kind, protocol, _, ip_address in candidates:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            for option, size in buffers.items():
                if size != -1:
                    # Before the connect: TCP negotiates the window scale in the handshake.
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            await loop.sock_connect(sock, ip_address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            reason = os.strerror(error.errno) if error.errno else str(error)
        except BaseException:
            sock.close()
            raise
        else:
            connected(sock)
            return
    lost(reason)


async def _resolve(loop: asyncio.AbstractEventLoop, address: Address) -> Sequence[Any]:
    name, port = address
    host = name.encode() if name.isascii() else name  # Python loads its IDNA codec for any text
    with contextlib.suppress(socket.gaierror):  # fails for a host name; an IP address needs no resolver
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
