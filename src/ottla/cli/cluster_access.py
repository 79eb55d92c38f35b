"""How a command reaches a cluster: the options that all of them have, and how their failures are told.

A failure is one line on standard error and exit code 1; wrong usage is exit code 2.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

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


def client_configs(bootstrap_server: str, file: str | None, **more: Any) -> dict[str, Any]:
    """Configs of a client for a command; what the command itself wants comes last."""
    from ottla.broker.config import read_file

    given: dict[str, Any] = dict(read_file(Path(file))) if file else {}
    return {"client.id": "ottla-cli", **given, "bootstrap.servers": bootstrap_server, **more}


class CommandFailed(click.ClickException):
    """A command that could not do what it was asked for: its message is what the user reads."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        """One line on standard error."""
        del file
        click.echo(f"ottla: {self.format_message()}", err=True)


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Whatever a client or a config raises becomes a CommandFailed."""
    from ottla.client.errors import KafkaError
    from ottla.metadata.configs import InvalidConfig

    try:
        yield
    except (KafkaError, InvalidConfig) as error:
        raise CommandFailed(str(error)) from None
