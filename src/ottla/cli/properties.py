"""Properties on the command line: files, and NAME=VALUE options that win over them; and options under their old names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from ottla.cli.cluster_access import read_properties


def properties(file: str | None, given: Iterable[str], option: str) -> dict[str, str]:
    """A properties file and then NAME=VALUE texts. Raises UsageError, and CommandFailed for the file."""
    return {**(read_properties(file) if file else {}), **pairs(given, option)}


def pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """NAME=VALUE texts; a value may well be blank. Raises UsageError."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} {text}: a property is NAME=VALUE")
        found[name.strip()] = value
    return found


def given_of(given: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Those of the options that were given, in their spelling on the command line."""
    keys = {"list": "list_", "topic": "topics", "group": "groups"}
    found = []
    for name in names:
        key = name.replace("-", "_")
        value = given[key] if key in given else given[keys[name]]
        if value not in (False, None, ()):
            found.append(name)
    return found


def one_action(given: Mapping[str, Any], actions: Sequence[str]) -> str:
    """Return the action that is given. Raises UsageError unless it is exactly one."""
    named = given_of(given, actions)
    if len(named) != 1:
        listed = ", ".join(f"--{each}" for each in actions)
        raise click.UsageError(f"exactly one of {listed} says what to do")
    return named[0]


IS_DEPRECATED: Final = "Option {old} is deprecated and will be removed in a future version. Use {new} instead."
HAS_BEEN_DEPRECATED: Final = (
    "Option {old} has been deprecated and will be removed in a future version. Use {new} instead."
)
WARNING: Final = "Warning: {old} is deprecated. Use {new} instead."
LONG_WARNING: Final = "Warning: {old} is deprecated and will be removed in a future version. Use {new} instead."


def deprecated(old: str, new: str, given: bool, words: str = IS_DEPRECATED) -> None:
    """Say that an option has another name now (KIP-1147), if it was given; each of Kafka's tools has its own words."""
    if given:
        click.echo(words.format(old=old, new=new), err=True)
