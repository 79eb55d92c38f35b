"""Configs of a client of a schema registry, converted to Ottla's SchemaRegistry."""

import ssl
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from ottla.schemas.registry import SchemaRegistry

_NUMBERS: Final = (
    "timeout",
    "cache.capacity",
    "cache.latest.ttl.sec",
    "max.retries",
    "retries.wait.ms",
    "retries.max.wait.ms",
)
_TEXTS: Final = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "basic.auth.user.info",
    "proxy",
)
_BEARER: Final = (
    "bearer.auth.credentials.source",
    "bearer.auth.token",
    "bearer.auth.logical.cluster",
    "bearer.auth.identity.pool.id",
    "bearer.auth.custom.provider.function",
    "bearer.auth.custom.provider.config",
)
_TIMEOUT_S: Final = 60
"""Time for a request where no timeout is set: confluent-kafka would wait for ever."""


class Connection(NamedTuple):
    """Registry to ask, and what a client keeps of its responses.

    capacity  number of latest versions that are kept
    ttl       seconds for which they are kept, None for as long as the client lives
    """

    registry: SchemaRegistry
    capacity: int
    ttl: float | None


def connection(conf: Mapping[str, Any]) -> Connection:
    """Convert configs. Raises TypeError, ValueError with the texts of confluent-kafka."""
    unknown = [name for name in conf if name not in ("url", *_NUMBERS, *_TEXTS, *_BEARER)]
    location = _location(conf.get("url"))
    if unknown:
        raise ValueError(f"Unrecognized properties: {', '.join(unknown)}")
    for name in _NUMBERS:
        if not isinstance(conf.get(name), int | float | None):
            raise TypeError(f"{name} must be a number, not {type(conf[name])}")
    timeout, retries = conf.get("timeout"), conf.get("max.retries")
    registry = SchemaRegistry(
        location=location,
        user_info=_user_info(location, conf.get("basic.auth.user.info")),
        timeout_ms=int((_TIMEOUT_S if timeout is None else timeout) * 1000),
        retries=3 if retries is None else int(retries),
        pause_ms=int(conf.get("retries.wait.ms") or 1000),
        max_pause_ms=int(conf.get("retries.max.wait.ms") or 20_000),
        opener=_opener(conf),
        headers=_bearer(conf),
    )
    capacity = conf.get("cache.capacity")
    return Connection(registry, 1000 if capacity is None else int(capacity), conf.get("cache.latest.ttl.sec"))


def _location(url: Any) -> str:
    if url is None:
        raise ValueError("Missing required configuration property url")
    if not isinstance(url, str):
        raise TypeError(f"url must be a str, not {type(url)}")
    addresses = [address.strip().rstrip("/") for address in url.split(",")]
    for address in addresses:
        if address.startswith("mock"):
            raise ValueError(f"{address}: ottla.compat has no mock registry; ottla.testing has a real one for tests")
        if not address.startswith("http"):
            raise ValueError(f"Invalid url {address}")
    return ",".join(addresses)


def _user_info(location: str, user_info: str | None) -> str | None:
    if user_info is None:
        return None
    if urlsplit(location.split(",")[0]).username is not None:
        raise ValueError(
            "basic.auth.user.info configured with userinfo credentials in the URL. Remove userinfo credentials from the url or "
            "remove basic.auth.user.info from the configuration"
        )
    if ":" not in user_info:
        raise ValueError("basic.auth.user.info must be in the form of {username}:{password}")
    return user_info


def _opener(conf: Mapping[str, Any]) -> urllib.request.OpenerDirector | None:
    """Return what sends requests with certificates or through a proxy; None for the default."""
    authority, certificate = conf.get("ssl.ca.location"), conf.get("ssl.certificate.location")
    key, password, proxy = conf.get("ssl.key.location"), conf.get("ssl.key.password"), conf.get("proxy")
    if certificate is None and (key is not None or password is not None):
        raise ValueError("ssl.certificate.location required when configuring ssl.key.location or ssl.key.password")
    if authority is False:
        raise ValueError("ssl.ca.location=False cannot be honoured by Ottla's client")
    handlers: list[urllib.request.BaseHandler] = []
    if authority is not None or certificate is not None:
        is_folder = authority is not None and Path(authority).is_dir()
        file, folder = (None, authority) if is_folder else (authority, None)
        context = ssl.create_default_context(cafile=file, capath=folder)
        if certificate is not None:
            context.load_cert_chain(certificate, key, password)
        handlers.append(urllib.request.HTTPSHandler(context=context))
    if proxy is not None:
        handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    return urllib.request.build_opener(*handlers) if handlers else None


def _bearer(conf: Mapping[str, Any]) -> Callable[[], Mapping[str, str]] | None:
    """Return a function that returns the headers with a token; None without. Raises ValueError."""
    source = conf.get("bearer.auth.credentials.source")
    if source is None:
        return None
    if source not in ("STATIC_TOKEN", "CUSTOM"):
        raise ValueError(f"bearer.auth.credentials.source={source} cannot be honoured: use CUSTOM or STATIC_TOKEN")
    custom = ("bearer.auth.custom.provider.function", "bearer.auth.custom.provider.config")
    needed = ("bearer.auth.token",) if source == "STATIC_TOKEN" else custom
    for names in (("bearer.auth.logical.cluster",), needed):
        missing = [name for name in names if name not in conf]
        if missing:
            raise ValueError(f"Missing required bearer configuration properties: {', '.join(missing)}")

    def headers() -> Mapping[str, str]:
        fields = conf
        if source == "CUSTOM":
            fields = conf["bearer.auth.custom.provider.function"](conf["bearer.auth.custom.provider.config"])
        pool = fields.get("bearer.auth.identity.pool.id")
        pools = ",".join(pool) if isinstance(pool, list) else pool
        return {
            "Authorization": f"Bearer {fields['bearer.auth.token']}",
            "target-sr-cluster": str(fields["bearer.auth.logical.cluster"]),
            **({} if pools is None else {"Confluent-Identity-Pool-Id": pools}),
        }

    return headers
