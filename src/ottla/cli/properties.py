"""Properties on the command line: files, and NAME=VALUE options that win over them; and options under their old names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from ottla.cli.cluster_access import read_properties


def properties(file: str | None, texts: Iterable[str], option: str) -> dict[str, str]:
    """A properties file and then NAME=VALUE texts. Raises UsageError, and CommandFailed for the file."""
    return {**(read_properties(file) if file else {}), **pairs(texts, option)}


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """NAME=VALUE texts; a value may well be blank. Raises UsageError."""
    configs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} {text}: a property is NAME=VALUE")
        configs[name.strip()] = value
    return configs


def selected_options(options: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Those of the options that were given, in their spelling on the command line."""
    keys = {"list": "list_", "topic": "topics", "group": "groups"}
    named = []
    for name in names:
        key = name.replace("-", "_")
        value = options[key] if key in options else options[keys[name]]
        if value not in (False, None, ()):
            named.append(name)
    return named


def one_action(options: Mapping[str, Any], actions: Sequence[str]) -> str:
    """Return the action that is given. Raises UsageError unless it is exactly one."""
    named = selected_options(options, actions)
    if len(named) != 1:
        listed = ", ".join(f"--{action}" for action in actions)
        raise click.UsageError(f"exactly one of {listed} says what to do")
    return named[0]


IS_DEPRECATED: Final = "Option {old} is deprecated and will be removed in a future version. Use {new} instead."
HAS_BEEN_DEPRECATED: Final = (
    "Option {old} has been deprecated and will be removed in a future version. Use {new} instead."
)
WARNING: Final = "Warning: {old} is deprecated. Use {new} instead."
LONG_WARNING: Final = "Warning: {old} is deprecated and will be removed in a future version. Use {new} instead."


def deprecated(old: str, new: str, was_used: bool, words: str = IS_DEPRECATED) -> None:
    """Say that an option has another name now (KIP-1147), if it was given; each of Kafka's tools has its own words."""
    if was_used:
        click.echo(words.format(old=old, new=new), err=True)
