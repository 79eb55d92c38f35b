"""Clocks, random numbers, name resolution and environment variables of the operating system."""

import ipaddress
import os
import random
import socket
import time
from collections.abc import Mapping
from pathlib import Path


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


def thread_cpu_ns() -> int:
    """Return the CPU time of the calling thread, in ns."""
    return time.thread_time_ns()


def process_io() -> dict[str, int]:
    """Return the I/O counters of the process by name, as in /proc/self/io; empty where the system has none."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return {}
    return {name: int(value) for name, _, value in (line.partition(":") for line in lines)}


def environment_variables() -> Mapping[str, str]:
    """Return the environment variables of the process."""
    return os.environ


def resolve_address(host: str) -> str | None:
    """Resolve a host to its IP address, and normalise an IP address; None if it cannot be resolved."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        try:
            return str(socket.getaddrinfo(host, None)[0][4][0])
        except (OSError, UnicodeError):
            return None
