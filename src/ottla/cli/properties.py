"""Properties on the command line: files, NAME=VALUE options that override them, and deprecated options."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click
from click.core import ParameterSource

from ottla.cli.cluster_access import read_properties


def properties(file: str | None, texts: Iterable[str], option: str) -> dict[str, str]:
    """Merge a properties file with NAME=VALUE texts, which take precedence. Raises UsageError, CommandFailed for the file."""
    return {**(read_properties(file) if file else {}), **pairs(texts, option)}


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parse NAME=VALUE texts; a value may be empty. Raises UsageError."""
    configs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} {text}: a property must be NAME=VALUE")
        configs[name.strip()] = value
    return configs


def selected_options(names: Iterable[str]) -> list[str]:
    """Return the names of those options that are on the command line of the running command; names are without "--"."""
    selected = {parameter.opts[0].removeprefix("--") for parameter in _on_command_line()}
    return [name for name in names if name in selected]


def _on_command_line() -> list[click.Parameter]:
    context = click.get_current_context()
    return [
        parameter
        for parameter in context.command.params
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]


def one_action(actions: Sequence[str]) -> str:
    """Return the selected action. Raises UsageError unless there is exactly one."""
    named = selected_options(actions)
    if len(named) != 1:
        listed = ", ".join(f"--{action}" for action in actions)
        raise click.UsageError(f"specify exactly one of {listed}")
    return named[0]


def check_options_of(action: str, taken_by: Mapping[str, Sequence[str]]) -> None:
    """Check that the action takes every option of the command line: an ignored one would mislead. Raises UsageError.

    taken_by  actions that take an option, by its name; an option without an entry is taken by all
    """
    for option in selected_options(taken_by):
        if action not in taken_by[option]:
            named = " and ".join(f"--{name}" for name in taken_by[option])
            raise click.UsageError(f"--{option} can only be used with {named}")


IS_DEPRECATED: Final = "Option {old} is deprecated and will be removed in a future version. Use {new} instead."
HAS_BEEN_DEPRECATED: Final = (
    "Option {old} has been deprecated and will be removed in a future version. Use {new} instead."
)
WARNING: Final = "Warning: {old} is deprecated. Use {new} instead."
LONG_WARNING: Final = "Warning: {old} is deprecated and will be removed in a future version. Use {new} instead."


def warn_if_deprecated(old: str, new: str, words: str = IS_DEPRECATED, *, excludes: bool = True) -> None:
    """Print a deprecation warning (KIP-1147) if the option `old` is on the command line.

    words     text of Kafka's tool
    excludes  whether `new` cannot be on the command line as well. Raises UsageError
    """
    selected = {name for parameter in _on_command_line() for name in parameter.opts}
    if old not in selected:
        return
    if excludes and new in selected:
        raise click.UsageError(f"{old} and {new} cannot be specified together")
    click.echo(words.format(old=old, new=new), err=True)
