"""Text of network addresses."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address


def address_text(host: str, port: int) -> str:
    """Format "host:port", with an IPv6 address in brackets as in URLs: "[::1]:9092"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@lru_cache(maxsize=64)
def is_name(host: str) -> bool:
    """Return whether a host is given by a name, and not by an address; an empty host is no name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return bool(host)
    return False


def network_of(ip: str) -> str:
    """Return what counts as one address: an IPv4 address, or the first 64 bits of an IPv6 address."""
    if ":" not in ip:
        return ip
    try:
        address = IPv6Address(ip.partition("%")[0])
    except ValueError:
        return ip
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64))
