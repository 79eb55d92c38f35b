"""Properties on the command line: files, and NAME=VALUE options that win over them; and options under their old names."""

from collections.abc import Iterable

import click

from ottla.cli.cluster_access import read_properties


def properties(file: str | None, given: Iterable[str], option: str) -> dict[str, str]:
    """A properties file and then NAME=VALUE texts. Raises UsageError, and CommandFailed for the file."""
    found = read_properties(file) if file else {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} {text}: a property is NAME=VALUE")
        # A separator may well be blank.
        found[name.strip()] = value
    return found


def deprecated(old: str, new: str, given: bool) -> None:
    """Say that an option has another name now (KIP-1147), if it was given."""
    if given:
        click.echo(f"Option {old} is deprecated and will be removed in a future version. Use {new} instead.", err=True)
