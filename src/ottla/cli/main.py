"""`ottla`: the entry to every command.

A failure is one line on standard error and exit code 1 (2 for wrong usage); a traceback never reaches a user.
"""

import sys

import click

from ottla import __version__
from ottla.cli.serve import serve
from ottla.cli.storage import storage


def form() -> str:
    """Whether the hot modules run compiled or interpreted."""
    from ottla.records import validation

    return "interpreted" if validation.__file__.endswith(".py") else "compiled"


class Failure(click.ClickException):
    """A command that could not do what it was asked for: its message is what the user reads."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        del file
        click.echo(f"ottla: {self.format_message()}", err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(message=f"ottla {__version__} ({form()}, Python {sys.version.split()[0]})")
def main() -> None:
    """Kafka you can pip install."""


main.add_command(serve)
main.add_command(storage)
