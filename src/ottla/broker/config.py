"""Sources of a broker's configs: a server.properties file, the environment, `-o name=value`; the later wins.

Every source uses Kafka's names. On the command line and in the environment an unknown config name is an error that names the
nearest one, because a misspelt config that is silently ignored is found in production; in a file, which may be another
broker's, it is a warning, as in Kafka. Only `read_file`, and values that refer to another file (config.providers), touch the
disk; all the rest is pure.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ottla.broker.security.listener_configs import Listener, check_listeners, client_listeners, parse_listeners
from ottla.metadata.configs import TASK_ASSIGNORS, BrokerValues, InvalidConfig, Scope, configs, parse
from ottla.metadata.configs.effects import OF_THE_AUTHORIZER, without_effect
from ottla.metadata.configs.schema_rules import REGISTRY_URL
from ottla.metadata.configs.table import CLASS
from ottla.metadata.plans.cordons import ALL, CORDONED, is_named
from ottla.properties import BadReference, read_properties, resolve_references
from ottla.spelling import did_you_mean

ENVIRONMENT_PREFIX: Final = "OTTLA_"
_NOT_CONFIGS: Final = (
    "OTTLA_BOOTSTRAP_SERVERS",
    "OTTLA_COMPILE",
    "OTTLA_BENCH_",
    "OTTLA_CLIENT_",
    "OTTLA_OAUTH_URLS",
    "OTTLA_DEMO_",
    "OTTLA_REFERENCE_",
    "OTTLA_TEST_",
)
"""Variables of the command line (cluster_access.py), and of Ottla's own build, benchmarks and tests."""

_KAFKAS_OWN: Final = "org.apache.kafka."
"""Package of Apache Kafka's own classes."""
_ASSIGNOR_PACKAGE: Final = "org.apache.kafka.coordinator.group.assignor."
_ASSIGNORS: Final = {
    "group.consumer.assignors": (
        "uniform",
        "range",
        f"{_ASSIGNOR_PACKAGE}UniformAssignor",
        f"{_ASSIGNOR_PACKAGE}RangeAssignor",
    ),
    "group.share.assignors": ("simple", f"{_ASSIGNOR_PACKAGE}SimpleAssignor"),
}
"""Valid values of the assignor configs: short names and Kafka's classes."""
STICKY_ASSIGNORS: Final = ("sticky", "org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor")
"""Entries of group.streams.assignors for the broker's own assignor; others are Python classes."""
_PYTHON_CLASSES: Final = (
    "authorizer.class.name",
    "group.streams.topology.description.plugin.class",
    "principal.builder.class",
    "sasl.server.callback.handler.class",
)
"""Configs that take a Python class as package.module:Name."""
_OPEN_PREFIXES: Final = ("listener.name.", "config.providers.", "rlmm.config.", "rsm.config.")
"""Prefixes of names that end in a listener's or a plug-in's own name."""


def read_file(path: Path) -> dict[str, str]:
    """The properties of the file at `path`. Raises InvalidConfig in one line when it cannot be read."""
    try:
        return read_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "it is not UTF-8 text"
        raise InvalidConfig(f"cannot read {path}: {reason}") from None


def _read_text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the configs among environment variables: OTTLA_LOG_RETENTION_MS is log.retention.ms. Raises InvalidConfig for a
    variable of that form that names no config.
    """
    variables = {
        variable: text
        for variable, text in environment.items()
        if variable.startswith(ENVIRONMENT_PREFIX) and not variable.startswith(_NOT_CONFIGS)
    }
    if not variables:
        return {}
    names = {variable_of(name): name for name in (*configs(Scope.BROKER), *OF_THE_AUTHORIZER)}
    texts: dict[str, str] = {}
    for variable, text in variables.items():
        if variable not in names:
            raise InvalidConfig(_unknown("environment variable", variable, names))
        texts[names[variable]] = text
    return texts


def variable_of(name: str) -> str:
    """The environment variable that sets the config `name`."""
    return ENVIRONMENT_PREFIX + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def from_options(options: Iterable[str]) -> dict[str, str]:
    """Return configs from options of the form `name=value`. Raises InvalidConfig for an option without `=`."""
    texts: dict[str, str] = {}
    for option in options:
        name, separator, text = option.partition("=")
        if not separator or not name.strip():
            raise InvalidConfig(f"-o takes name=value, not {option!r}")
        texts[name.strip()] = text
    return texts


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    return f"unknown {what} {name}{did_you_mean(name, known)}"


def _check(texts: Mapping[str, str], file: Mapping[str, str]) -> dict[str, str]:
    """Return `texts`. Raises InvalidConfig for an invalid value, and for an unknown name that is not from `file`."""
    known = configs(Scope.BROKER)
    for name, text in texts.items():
        if name in known:
            parse(known[name], text)
        elif not name.startswith(_OPEN_PREFIXES) and name not in OF_THE_AUTHORIZER and name not in file:
            raise InvalidConfig(_unknown("config", name, [*known, *OF_THE_AUTHORIZER]))
    return dict(texts)


def _check_classes(config: "BrokerConfig") -> None:
    """Raise InvalidConfig for a class or an assignor that Ottla does not have, rather than ignore it silently."""
    for row in configs(Scope.BROKER).values():
        text = config.static.get(row.name)
        if row.name in _PYTHON_CLASSES and text and ":" in text:
            continue
        if text and row.type == CLASS and text != row.default and not text.startswith(_KAFKAS_OWN):
            raise InvalidConfig(f"Invalid value {text} for configuration {row.name}: Class {text} could not be found.")
    classes = [("metric.reporters", text) for text in config.items_of("metric.reporters")]
    classes.append(("replica.selector.class", config.text("replica.selector.class") or ""))
    for name, text in classes:
        if text and not text.startswith(_KAFKAS_OWN):
            raise InvalidConfig(f"Invalid value {text} for configuration {name}: Class {text} could not be found.")
    for name, assignors in _ASSIGNORS.items():
        for text in config.items_of(name):
            if text not in assignors:
                raise InvalidConfig(f"Invalid value {text} for configuration {name}: Class cannot be found")
    for text in config.items_of(TASK_ASSIGNORS):
        if text not in STICKY_ASSIGNORS and ":" not in text:
            raise InvalidConfig(f"Invalid value {text} for configuration {TASK_ASSIGNORS}: Class cannot be found")


class BrokerConfig(BrokerValues):
    """The configs that a broker starts with, and values derived from several of them."""

    __slots__ = ()

    @property
    def node_id(self) -> int:
        """node.id, or broker.id as in old files, or 1."""
        for name in ("node.id", "broker.id"):
            value = self[name]
            if isinstance(value, int) and value >= 0:
                return value
        return 1

    def with_node_id(self) -> "BrokerConfig":
        """Return these configs with node.id set: Kafka requires it, so a broker that was started without one reports it too."""
        if "node.id" in self.static:
            return self
        return BrokerConfig({**self.static, "node.id": str(self.node_id)})

    @property
    def unknown(self) -> list[str]:
        """Names in the file that are not broker configs."""
        known = (*_OPEN_PREFIXES, *OF_THE_AUTHORIZER)
        return [name for name in self.static if name not in configs(Scope.BROKER) and not name.startswith(known)]

    @property
    def idle(self) -> list[str]:
        """Names of the configs that are set and have no effect, sorted."""
        idle = without_effect(self.static)
        if not self.text("authorizer.class.name"):
            idle += [name for name in OF_THE_AUTHORIZER if name in self.static]
        return sorted(idle)

    @property
    def log_dirs(self) -> list[str]:
        """log.dirs, else log.dir."""
        return self.items_of("log.dirs") or self.items_of("log.dir")

    @property
    def cordoned_log_dirs(self) -> list[str]:
        """Those of the log directories that get no new partitions."""
        return [path for path in self.log_dirs if is_named(path, self.items_of(CORDONED))]

    def _check_cordoned(self) -> None:
        entries = self.items_of(CORDONED)
        if ALL in entries and len(entries) > 1:
            raise InvalidConfig(
                f"requirement failed: When {CORDONED} is set to {ALL}, it must not contain other values"
            )
        missing = [entry for entry in entries if entry != ALL and entry not in self.log_dirs]
        if missing:
            raise InvalidConfig(
                f"requirement failed: All entries in {CORDONED} must be present in log.dirs or log.dir. "
                f"Missing entries : {', '.join(missing)}"
            )

    @property
    def metadata_log_dir(self) -> str:
        """metadata.log.dir, else the first of the log directories."""
        return self.text("metadata.log.dir") or self.log_dirs[0]

    @property
    def listeners(self) -> list[Listener]:
        """Listeners for clients: `listeners` without those of the controller. Raises InvalidConfig."""
        return client_listeners(self)

    @property
    def advertised_listeners(self) -> list[Listener]:
        """Addresses returned to clients; empty: names in `listeners`, or what they connected to. Raises InvalidConfig."""
        return parse_listeners(self, "advertised.listeners")

    @property
    def connections_per_ip(self) -> dict[str, int]:
        """max.connections.per.ip.overrides: maximum number of connections by address. Raises InvalidConfig."""
        config = "max.connections.per.ip.overrides"
        limits: dict[str, int] = {}
        for text in filter(None, map(str.strip, (self.text(config) or "").split(","))):
            host, _, count = text.rpartition(":")
            if not host or not count.isdecimal():
                raise InvalidConfig(
                    f"Invalid value {text} for configuration {config}: an override is address:count, as in 10.0.0.7:20"
                )
            limits[host.strip("[]")] = int(count)
        return limits

    def check(self) -> None:
        """Raise InvalidConfig for values that are valid by type but not usable."""
        _check_classes(self)
        self._check_cordoned()
        check_listeners(self)
        for address in (self.text(REGISTRY_URL) or "").split(","):
            if self.text(REGISTRY_URL) and not address.strip().startswith(("http://", "https://")):
                raise InvalidConfig(
                    f"Invalid value {address} for configuration {REGISTRY_URL}: an address begins with http:// or https://"
                )
        if not self.connections_per_ip and self.integer("max.connections.per.ip") == 0:
            raise InvalidConfig(
                "requirement failed: max.connections.per.ip can be set to zero only if "
                "max.connections.per.ip.overrides property is set."
            )


def broker_config(
    file: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    options: Iterable[str] = (),
) -> BrokerConfig:
    """The configs of a broker: `options` ("name=value") before `environment` before `file`.

    Raises InvalidConfig, in one line, for an unknown name, a value that its config does not take, or a listener that
    cannot be used.
    """
    file = dict(file or {})
    if "controller.quorum.voters" in file or "process.roles" in file:
        file.setdefault("controller.listener.names", "CONTROLLER")
    merged = file | from_environment(environment or {}) | from_options(options)
    try:
        merged = resolve_references(merged, _read_text, environment or {})
    except BadReference as cause:
        raise InvalidConfig(str(cause)) from None
    config = BrokerConfig(_check(merged, file))
    config.check()
    return config
