"""Clocks, random numbers and names of the machine."""

import ipaddress
import random
import socket
import time


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SystemRandom:
    """The machine's own random numbers."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def bytes16(self) -> bytes:
        return self._random.randbytes(16)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


def resolved_address(host: str) -> str | None:
    """The address of a host, or an address as sockets write it; None when it cannot be resolved."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        try:
            return str(socket.getaddrinfo(host, None)[0][4][0])
        except (OSError, UnicodeError):
            return None
