"""Options for connecting to a cluster, and the form of failures.

A failure is one line on standard error and exit code 1; wrong usage is exit code 2. The address of the cluster is the first of:
--bootstrap-server, bootstrap.servers in the command's properties, in the profile, the environment variable
OTTLA_BOOTSTRAP_SERVERS, 127.0.0.1:9092.
"""

import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Generic, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from ottla.cli.profiles import InvalidProfile, Profile, permission_warning, profile_names, profiles_path, read_profile
from ottla.cli.stopping import Stop
from ottla.client.admin.requests import Requests
from ottla.client.errors import KafkaError
from ottla.client.waiting import Blocking
from ottla.tasks.deferred import Deferred

T = TypeVar("T")
R = TypeVar("R", bound=Requests)
R_co = TypeVar("R_co", bound=Requests, covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


BOOTSTRAP_VARIABLE: Final = "OTTLA_BOOTSTRAP_SERVERS"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
NO_CLIENT_CONFIGS: Final = ("schema.registry.", "broker.metrics.")
"""Beginnings of the properties of a profile that name its schema registry and the metrics of its brokers."""
_PROFILE: Final = "ottla.cli.profile"
_TIMEOUT: Final = "ottla.cli.timeout"
"""Keys of the profile and of --timeout in the meta dictionary of click's contexts, which sub-commands share."""
TERMINAL_MS: Final = 10_000
"""Longest wait for the first answer of a broker on a terminal, where a user waits."""


def complete_profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete profile names from the user's file."""
    del ctx, param
    try:
        return [name for name in profile_names(profiles_path()) if name.startswith(incomplete)]
    except InvalidProfile:
        return []


def _select_profile(ctx: click.Context, param: click.Parameter, name: str | None) -> None:
    """Read the profile of --profile. Raises CommandFailed."""
    del param
    if name is None:
        return
    path = profiles_path()
    try:
        ctx.meta[_PROFILE] = read_profile(path, name)
    except InvalidProfile as error:
        raise CommandFailed(str(error)) from None
    warning = permission_warning(path)
    if warning and not ctx.resilient_parsing:  # resilient: the shell requests completions
        click.echo(warning, err=True)


def _store_timeout(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    del param
    if value is not None:
        ctx.meta[_TIMEOUT] = value


def timeout_option() -> click.Option:
    """Return the option --timeout, for commands without one of their own that Kafka's tool has."""
    return click.Option(
        ["--timeout"],
        type=click.IntRange(1),
        metavar="MS",
        expose_value=False,
        callback=_store_timeout,
        help=f"Longest wait for an answer. [default: 60000; {TERMINAL_MS} for the first one on a terminal]",
    )


def first_answer_ms() -> int | None:
    """Return the longest wait for the first answer of a broker: --timeout, or ten seconds on a terminal; None is that of the
    client."""
    context = click.get_current_context(silent=True)
    if context is None:
        return None
    limit: int | None = context.meta.get(_TIMEOUT)
    if limit is not None or context.get_parameter_source("timeout") is ParameterSource.COMMANDLINE:
        return limit
    return TERMINAL_MS if is_terminal() else None


def is_terminal() -> bool:
    """Return whether a user sees the errors of the command at once."""
    return sys.stderr.isatty()


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine several options into one decorator."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


profile_option = click.option(
    "--profile",
    metavar="NAME",
    expose_value=False,
    callback=_select_profile,
    shell_complete=complete_profiles,
    help="Client properties from this table of profiles.toml.",
)

bootstrap_options = _options(
    click.option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="Brokers to connect to, comma-separated. "
        f"[default: the profile's, ${BOOTSTRAP_VARIABLE}, {DEFAULT_BOOTSTRAP}]",
    ),
    profile_option,
)
"""--bootstrap-server and --profile."""

cluster_options = _options(
    bootstrap_options,
    click.option("--command-config", metavar="FILE", help="Properties for the client, one name=value a line."),
)
"""--bootstrap-server, --profile, --command-config."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


class CommandFailed(click.ClickException):
    """A command has failed; the message is shown to the user."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        """Print the message as one line on standard error."""
        del file
        click.echo(f"ottla: {self.format_message()}", err=True)


class AdminConnection(Blocking, Generic[R_co]):
    """Connection to a cluster, with the subset of the admin client that a command needs; only that is loaded."""

    def __init__(self, part: type[R_co], configs: Mapping[str, Any]) -> None:
        super().__init__(configs, {})
        self._admin = part(self._core)

    @property
    def admin(self) -> R_co:
        """Requests of the admin client, as coroutines for `ask`."""
        return self._admin

    def ask(self, coroutine: Coroutine[Deferred[Any], Any, T]) -> T:
        """Run a request and return its result. Raises KafkaError."""
        return self._run(coroutine)


class BootstrapAddress(NamedTuple):
    """Bootstrap servers of a command.

    servers  "host:port,host:port"
    source   option, file, profile or variable that they come from
    """

    servers: str
    source: str

    def __str__(self) -> str:
        return f"{self.servers} ({self.source})"


@contextmanager
def connect(
    part: type[R], bootstrap_server: str | None, command_config: str | None, *, changes: bool = False, **configs: Any
) -> Iterator[AdminConnection[R]]:
    """Connect to the cluster of a command; `configs` override the file. Errors become CommandFailed.

    changes  print the address on standard error first: the command changes or deletes something
    """
    file = read_properties(command_config) if command_config else {}
    if changes:
        click.echo(f"Changing the cluster at {address_of(bootstrap_server, file)}", err=True)
    with (
        command_errors(),
        AdminConnection(part, client_configs(bootstrap_server, None, **{**file, **configs})) as cluster,
    ):
        _wait_for_broker(cluster)
        yield cluster


def _wait_for_broker(cluster: AdminConnection[Any]) -> None:
    """Wait for a broker for as long as a user at a terminal would. Raises KafkaError."""
    limit = first_answer_ms()
    if limit is not None:
        metadata = cluster.admin.metadata
        cluster.ask(metadata.retrying("connect", metadata.any_link, limit))


def answering_configs(stop: Stop, bootstrap_server: str | None, file: str | None = None, **more: Any) -> dict[str, Any]:
    """Return the client configs of a command that reads or writes records, after a broker has answered, where a user waits for
    it. Raises CommandFailed, KafkaError."""
    configs = client_configs(bootstrap_server, file, **more)
    if first_answer_ms() is not None:
        own = {name: value for name, value in configs.items() if name != "group.id"}
        with stop.interruptible(), AdminConnection(Requests, own) as cluster:
            _wait_for_broker(cluster)
    return configs


def profile_properties() -> Mapping[str, str]:
    """Return the client configs of the profile selected by --profile, empty without it."""
    profile = _profile()
    if profile is None:
        return {}
    return {name: value for name, value in profile.properties.items() if not name.startswith(NO_CLIENT_CONFIGS)}


def profile_services() -> Mapping[str, str]:
    """Return the properties of the selected profile that are no client configs: its registry, the metrics of its brokers."""
    profile = _profile()
    if profile is None:
        return {}
    return {name: value for name, value in profile.properties.items() if name.startswith(NO_CLIENT_CONFIGS)}


def option_configs(options: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configs of options of the running command: an explicit option overrides the profile, its default does not.

    options  parameter name of an option -> config
    values   parameter name -> value
    """
    context = click.get_current_context()
    profile = profile_properties()
    return {
        config: profile[config]
        if config in profile and context.get_parameter_source(option) is ParameterSource.DEFAULT
        else values[option]
        for option, config in options.items()
    }


def _profile() -> Profile | None:
    context = click.get_current_context(silent=True)
    return context.meta.get(_PROFILE) if context is not None else None


def address_of(bootstrap_server: str | None, properties: Mapping[str, Any]) -> BootstrapAddress:
    """Return the address from the option, the command's properties, the profile, the environment or the default."""
    if bootstrap_server:
        return BootstrapAddress(bootstrap_server, "--bootstrap-server")
    if properties.get("bootstrap.servers"):
        return BootstrapAddress(str(properties["bootstrap.servers"]), "the command's properties")
    profile = _profile()
    if profile is not None and profile.properties.get("bootstrap.servers"):
        return BootstrapAddress(profile.properties["bootstrap.servers"], f"profile {profile.name}")
    if os.environ.get(BOOTSTRAP_VARIABLE):
        return BootstrapAddress(os.environ[BOOTSTRAP_VARIABLE], BOOTSTRAP_VARIABLE)
    return BootstrapAddress(DEFAULT_BOOTSTRAP, "the default")


def client_configs(bootstrap_server: str | None, file: str | None, **more: Any) -> dict[str, Any]:
    """Return the client configs of a command: `more` overrides the file, the file the profile. Raises CommandFailed."""
    configs: dict[str, Any] = {**(read_properties(file) if file else {}), **more}
    servers = address_of(bootstrap_server, configs).servers
    context = click.get_current_context(silent=True)
    limit = None if context is None else context.meta.get(_TIMEOUT)
    if limit is not None:
        configs["default.api.timeout.ms"] = limit
    return {"client.id": "ottla-cli", **profile_properties(), **configs, "bootstrap.servers": servers}


def read_properties(file: str) -> dict[str, str]:
    """Read a properties file. Raises CommandFailed."""
    from pathlib import Path

    from ottla.broker.config import read_file
    from ottla.metadata.configs import InvalidConfig

    try:
        return dict(read_file(Path(file)))
    except InvalidConfig as error:
        raise CommandFailed(str(error)) from None


@contextmanager
def command_errors() -> Iterator[None]:
    """Turn the errors of a client into CommandFailed."""
    try:
        yield
    except KafkaError as error:
        raise CommandFailed(str(error)) from None
