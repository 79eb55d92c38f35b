"""Ports for servers that stop and start again at the same address."""

import random
import socket
from typing import Final

# Below the ports that the kernel gives to connections (Linux: from 32768 on): while a server is down, a connection of another
# test could otherwise take its port.
_FIRST: Final = 10_000
_LAST: Final = 32_000


def free_ports(count: int) -> list[int]:
    """Return consecutive ports on which nothing listens."""
    while True:
        first = random.randrange(_FIRST, _LAST - count)
        ports = list(range(first, first + count))
        if all(map(_is_free, ports)):
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
