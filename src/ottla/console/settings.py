"""Settings of a console: its clusters, its address and its protection."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.console.proxy_login import ProxyLogin
from ottla.environment import Clock, Random
from ottla.environment.system import SystemClock, SystemRandom
from ottla.records.record import Record
from ottla.schemas.registry import SchemaRegistry
from ottla.security.passwords import PasswordFile

InternalRecord = Callable[[Record], tuple[str | None, str | None] | None]
"""Decoder of records of internal topics: a record -> key and value as JSON, None for other topics and without a key."""

RegistryText = Callable[[str, bytes], str | None]
"""Decoder of keys and values with a schema: (topic, data) -> JSON, None for other data. It may block."""


def _decode_nothing(record: Record) -> tuple[str | None, str | None] | None:
    del record
    return None


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Access to one cluster.

    name     name in URLs and menus
    configs  client configs by Kafka's names
    options  options of the command line that select the same cluster
    registry schema registry, None without
    metrics  addresses of the brokers' metrics, empty without
    """

    name: str
    configs: Mapping[str, Any]
    options: tuple[str, ...]
    registry: SchemaRegistry | None = None
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a console.

    clusters       at least one
    base_path      path below which a reverse proxy serves the console, "" or "/name"
    hosts          accepted names of the Host header, without port; all if empty
    token          token that logs in, None without
    passwords      users with hashed passwords, None without
    proxy          login by the header of a proxy, None without; with none of the three, no login is required
    editors        users that may make changes; None: all but `viewers`
    viewers        users that may not make changes
    cookie         name of the session cookie
    secure         set the cookie for HTTPS only
    search_ms      longest time of a search for messages
    spark_metrics  addresses of the metrics of Spark's queries
    """

    clusters: tuple[ClusterAccess, ...]
    base_path: str = ""
    read_only: bool = False
    hosts: frozenset[str] = frozenset()
    token: str | None = None
    passwords: PasswordFile | None = None
    proxy: ProxyLogin | None = None
    editors: frozenset[str] | None = None
    viewers: frozenset[str] = frozenset()
    cookie: str = "ottla-console"
    secure: bool = False
    search_ms: int = 5_000
    spark_metrics: tuple[str, ...] = ()
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    internal_record: InternalRecord = _decode_nothing

    def is_viewer(self, user: str) -> bool:
        """Return whether a user may see everything, and change nothing."""
        return user in self.viewers or (self.editors is not None and user not in self.editors)

    @property
    def requires_login(self) -> bool:
        """True if a request needs a session with a user."""
        return self.has_login_form or self.proxy is not None

    @property
    def has_login_form(self) -> bool:
        """True if users can log in by token or password."""
        return self.token is not None or self.passwords is not None
