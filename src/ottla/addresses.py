"""Text of network addresses."""

from ipaddress import IPv6Address


def address_text(host: str, port: int) -> str:
    """Format "host:port", with an IPv6 address in brackets as in URLs: "[::1]:9092"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
