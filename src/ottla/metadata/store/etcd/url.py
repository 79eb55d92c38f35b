"""The URL of an etcd cluster: etcd://user:password@host:2379,host2:2379/prefix.

With etcds:// the connections use TLS; cacert, cert and key are paths of PEM files, as in the flags of etcdctl:

    etcds://host:2379/prefix?cacert=/etc/etcd/ca.pem&cert=/etc/etcd/client.pem&key=/etc/etcd/client.key
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from ottla.addresses import address_text
from ottla.environment import Address

SCHEME: Final = "etcd://"
TLS_SCHEME: Final = "etcds://"
_FILES: Final = ("cacert", "cert", "key")
_DEFAULT_PORT: Final = 2379
_DEFAULT_PREFIX: Final = "/ottla"
_EXAMPLE: Final = "etcd://host1:2379,host2:2379/prefix"


class EtcdTls(NamedTuple):
    """TLS of the connections: paths of PEM files.

    cacert  trusted authorities; None: those of the system
    cert    certificate of the client, with its key in `key`; None without one
    """

    cacert: str | None = None
    cert: str | None = None
    key: str | None = None


class EtcdUrl(NamedTuple):
    """Endpoints of etcd, the prefix of all keys, a login, and TLS.

    prefix    begins with a slash and ends without one; "/ottla" by default
    user      None: etcd is used without login
    tls       None: connections without TLS
    """

    endpoints: Sequence[Address]
    prefix: str
    user: str | None = None
    password: str = ""
    tls: EtcdTls | None = None

    def __str__(self) -> str:
        """Return the URL without the login and the files."""
        scheme = SCHEME if self.tls is None else TLS_SCHEME
        return scheme + ",".join(map(endpoint_text, self.endpoints)) + self.prefix


def endpoint_text(address: Address) -> str:
    """Format an endpoint, with an IPv6 address in brackets."""
    return address_text(*address)


def parse(text: str) -> EtcdUrl:
    """Parse a URL. Raises ValueError with a message in one line, which never contains the password."""
    if not text.startswith((SCHEME, TLS_SCHEME)):
        raise ValueError(f"the URL of etcd must begin with {SCHEME} or {TLS_SCHEME}, like {_EXAMPLE}")
    rest, _, parameters = text.partition("://")[2].partition("?")
    tls = _tls(parameters) if text.startswith(TLS_SCHEME) else None
    if "#" in rest or (parameters and tls is None):
        raise ValueError(f"the URL of etcd has no parameters: it is like {_EXAMPLE}")
    authority, slash, path = rest.partition("/")
    login, at, hosts = authority.rpartition("@")
    user, _, password = login.partition(":")
    if at and not user:
        raise ValueError("the URL of etcd has a login without a user: it begins like etcd://user:password@host")
    endpoints = [_endpoint(part) for part in hosts.split(",")]
    if len(set(endpoints)) < len(endpoints):
        raise ValueError("the URL of etcd names an endpoint twice")
    prefix = slash + path.rstrip("/")
    if "//" in prefix:
        raise ValueError(f"the prefix {prefix} in the URL of etcd has an empty part")
    prefix = prefix.rstrip("/") or _DEFAULT_PREFIX
    return EtcdUrl(tuple(endpoints), prefix, unquote(user) if at else None, unquote(password), tls)


def _tls(parameters: str) -> EtcdTls:
    """Parse the parameters of a URL with TLS. Raises ValueError."""
    files = dict(parse_qsl(parameters, keep_blank_values=True))
    for name in files:
        if name not in _FILES:
            raise ValueError(f"the URL of etcd has the parameter {name}; there are {', '.join(_FILES)}")
    if ("cert" in files) != ("key" in files):
        raise ValueError("the URL of etcd names a cert without a key, or a key without a cert")
    return EtcdTls(**files)


def _endpoint(text: str) -> Address:
    """Parse "host", "host:port", "[::1]" or "[::1]:port"."""
    if text.startswith("["):
        host, bracket, after = text[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise ValueError(f"the endpoint {text} in the URL of etcd is not like [::1]:2379")
        port = after[1:] if after else None
    elif text.count(":") > 1:
        raise ValueError(f"the endpoint {text} in the URL of etcd is not like host:2379 or [::1]:2379")
    else:
        host, colon, after = text.partition(":")
        port = after if colon else None
    if not host:
        raise ValueError(f"the URL of etcd has an endpoint without a host: it is like {_EXAMPLE}")
    if port is None:
        return host, _DEFAULT_PORT
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"the endpoint {text} in the URL of etcd has no valid port")
    return host, int(port)
