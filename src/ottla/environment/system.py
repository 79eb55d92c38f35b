"""Clocks, random numbers and name resolution of the operating system."""

import ipaddress
import random
import socket
import time


class SystemClock:
    """Clocks of the operating system."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SystemRandom:
    """Random numbers of the operating system."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def bytes16(self) -> bytes:
        return self._random.randbytes(16)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


def resolved_address(host: str) -> str | None:
    """Resolve a host to its IP address, and normalise an IP address; None if it cannot be resolved."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        try:
            return str(socket.getaddrinfo(host, None)[0][4][0])
        except (OSError, UnicodeError):
            return None
