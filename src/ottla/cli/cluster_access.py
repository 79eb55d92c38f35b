"""How a command reaches a cluster: the options that all of them have, and how their failures are told.

A failure is one line on standard error and exit code 1; wrong usage is exit code 2.
"""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import click

from ottla.client.admin.requests import Requests
from ottla.client.errors import KafkaError
from ottla.client.scheduler import Promise
from ottla.client.waiting import Blocking

T = TypeVar("T")
R = TypeVar("R", bound=Requests)
R_co = TypeVar("R_co", bound=Requests, covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


def cluster_options(function: F) -> F:
    """--bootstrap-server, --command-config."""
    for option in reversed(
        (
            click.option(
                "--bootstrap-server",
                metavar="HOST:PORT",
                required=True,
                help="Brokers to connect to, several with commas between them.",
            ),
            click.option("--command-config", metavar="FILE", help="Properties for the client, one name=value a line."),
        )
    ):
        function = option(function)
    return function


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


class CommandFailed(click.ClickException):
    """A command that could not do what it was asked for: its message is what the user reads."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        """One line on standard error."""
        del file
        click.echo(f"ottla: {self.format_message()}", err=True)


class Cluster(Blocking, Generic[R_co]):
    """A cluster and the part of the admin client that a command needs of it: the others are not even loaded."""

    def __init__(self, part: type[R_co], configs: Mapping[str, Any]) -> None:
        super().__init__(configs, {})
        self._part = part(self._core)

    @property
    def admin(self) -> R_co:
        """What can be asked; `ask` waits for it."""
        return self._part

    def ask(self, coroutine: Coroutine[Promise[Any], None, T]) -> T:
        """The answer. Raises KafkaError."""
        return self._run(coroutine)


@contextmanager
def connected(part: type[R], bootstrap_server: str, command_config: str | None, **configs: Any) -> Iterator[Cluster[R]]:
    """A cluster as a command asks it; failures are told in one line. `configs` win over the file."""
    with told_in_one_line(), Cluster(part, client_configs(bootstrap_server, command_config, **configs)) as cluster:
        yield cluster


def client_configs(bootstrap_server: str, file: str | None, **more: Any) -> dict[str, Any]:
    """Configs of a client for a command; what the command itself wants comes last. Raises CommandFailed."""
    given: dict[str, Any] = dict(read_properties(file)) if file else {}
    return {"client.id": "ottla-cli", **given, "bootstrap.servers": bootstrap_server, **more}


def read_properties(file: str) -> dict[str, str]:
    """A properties file. Raises CommandFailed."""
    from pathlib import Path

    from ottla.broker.config import read_file
    from ottla.metadata.configs import InvalidConfig

    try:
        return dict(read_file(Path(file)))
    except InvalidConfig as error:
        raise CommandFailed(str(error)) from None


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Whatever a client raises becomes a CommandFailed."""
    try:
        yield
    except KafkaError as error:
        raise CommandFailed(str(error)) from None
