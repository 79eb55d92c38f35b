"""Profiles: named client properties in $XDG_CONFIG_HOME/ottla/profiles.toml, one table for each.

    [staging]
    "bootstrap.servers" = "broker-1:9092,broker-2:9092"
    "client.id" = "ada"

Names may be quoted or written as TOML's dotted keys: `bootstrap.servers = "..."` is the same property.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.spelling import did_you_mean

FILE_NAME: Final = "profiles.toml"
_READABLE_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH


class InvalidProfile(Exception):
    """A profile that does not exist, or a file that cannot be used: one line with cause and remedy."""


class Profile(NamedTuple):
    """Client properties under a name.

    name        the table's name
    properties  Kafka's dotted names and values, as in a properties file
    """

    name: str
    properties: Mapping[str, str]


def profiles_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Path of the file: below $XDG_CONFIG_HOME, by default ~/.config."""
    home = environment.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path("~/.config").expanduser()) / "ottla" / FILE_NAME


def profile_names(path: Path) -> list[str]:
    """Return the sorted names of profiles, empty without a file. Raises InvalidProfile for a malformed file."""
    return sorted(_tables(path)) if path.exists() else []


def read_profile(path: Path, name: str) -> Profile:
    """Return one profile. Raises InvalidProfile."""
    tables = _tables(path)
    if name not in tables:
        hint = did_you_mean(name, sorted(tables)) or f"; existing profiles: {', '.join(sorted(tables)) or 'none'}"
        raise InvalidProfile(f"no profile {name} in {path}{hint}")
    return Profile(name, dict(_flat(tables[name], "", f"{path}: profile {name}")))


def permission_warning(path: Path) -> str | None:
    """Warning for a file that other users can read: profiles hold passwords."""
    mode = path.stat().st_mode
    if not mode & _READABLE_BY_OTHERS:
        return None
    return f"WARNING: {path} is readable by other users (mode {stat.S_IMODE(mode):04o}); run: chmod 600 {path}"


def _tables(path: Path) -> dict[str, dict[str, Any]]:
    """Return the tables of the file by name. Raises InvalidProfile."""
    import tomllib  # takes some ms, and most commands read no profile

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidProfile(f"cannot read profiles from {path}: {error.strerror}") from None
    except ValueError as error:  # malformed TOML, or not UTF-8
        raise InvalidProfile(f"{path} is not TOML: {error}") from None
    for name, table in document.items():
        if not isinstance(table, dict):
            raise InvalidProfile(f"{path}: {name} is not in a profile; put it below a line [NAME]")
    return document


def _flat(table: Mapping[str, Any], prefix: str, where: str) -> Iterator[tuple[str, str]]:
    """Yield the properties of a table and of nested tables, created by dotted keys. Raises InvalidProfile."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.", where)
        elif isinstance(value, list) and all(isinstance(item, str | int) for item in value):
            yield name, ",".join(map(str, value))
        elif isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, str | int | float):
            yield name, str(value)
        else:
            raise InvalidProfile(f"{where}: {name} must be a string, a number, true or false, or a list of strings")
