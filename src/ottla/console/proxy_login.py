"""Login by a proxy: the user is a header that the proxy sets, believed from the addresses of proxies only."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from starlette.datastructures import Headers

_LONGEST_NAME: Final = 256


class ProxyLogin:
    """Header of the user, and the addresses that may set it.

    addresses  IP addresses, or networks like 10.0.0.0/8

    Raises ValueError for an address that is neither.
    """

    def __init__(self, header: str, addresses: Iterable[str]) -> None:
        self.header = header
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(address) for address in addresses]

    def trusts(self, peer: str) -> bool:
        """Return whether a connection comes from a proxy."""
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)

    def user(self, headers: Headers) -> str:
        """Return the user of a request of a proxy, "" without one.

        A header that occurs twice names no user: the proxy may have added its own to that of a client.
        """
        values = [value.strip() for value in headers.getlist(self.header)]
        if len(values) != 1 or len(values[0]) > _LONGEST_NAME or not values[0].isprintable():
            return ""
        return values[0]


def forwarded_address(headers: Headers, peer: str) -> str:
    """Return the address that a proxy got the request from: the last one of X-Forwarded-For, its own without one."""
    last = ",".join(headers.getlist("x-forwarded-for")).rpartition(",")[2].strip()
    try:
        return str(ip_address(last))
    except ValueError:
        return peer
