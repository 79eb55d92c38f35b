"""Java properties files, and values in them that name a secret kept elsewhere: Kafka's config providers (KIP-297, KIP-421).

password=${file:/etc/kafka/secrets.properties:password}     a property of another file
password=${directory:/run/secrets:password}                 the contents of a file in a directory
password=${env:PASSWORD}                                    a variable of the environment
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePath
from typing import Final

_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_REFERENCE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")


class BadReference(ValueError):
    """A value that names a secret which cannot be read, or a provider that does not exist: the reason in one line."""


_SECRETS: Final = (
    "password",
    "passphrase",
    "jaas.config",
    "client.secret",
    "secret.key",
    "keystore.key",
    "basic.auth.user.info",
)


def is_secret(name: str) -> bool:
    """Return whether the config `name` is a secret, or contains some, also with the prefix of a listener."""
    return name.endswith(_SECRETS)


def read_properties(text: str) -> dict[str, str]:
    r"""Return the properties of a Java properties file: # and ! comments, `=`, `:` or a blank as separator, `\` to continue a
    line, the escapes \n \t \r \f and \uXXXX. A name without a value maps to "". Later lines win."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        matched = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
        if matched and matched[1]:
            properties[_unescaped(matched[1])] = _unescaped(matched[2])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Drop comments and blank lines, and join each line that ends in an odd number of backslashes with the next one."""
    held = ""
    for line in text.splitlines():
        stripped = line.lstrip(" \t\f")
        if not held and (not stripped or stripped[0] in "#!"):
            continue
        whole = held + stripped
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            held = whole[:-1]
        else:
            held = ""
            yield whole
    if held:
        yield held


_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def _unescaped(text: str) -> str:
    def plain(matched: re.Match[str]) -> str:
        escape = matched[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPES.get(escape, escape)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, text)


def resolve_references(
    properties: Mapping[str, str], read: Callable[[str], str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Replace the references to secrets in all values, by the providers that config.providers names.

    A reference that its provider cannot resolve raises BadReference, and so does one to an unknown provider in a secret: in
    Kafka it stays as it is, so that `${env:PASSWORD}` becomes the password, which is easily guessed. Elsewhere a reference to
    an unknown provider stays.

    read  returns the text of the file at a path; raises OSError
    """
    providers = _providers(properties, read, environment)

    def resolve(name: str, matched: re.Match[str]) -> str:
        provider = providers.get(matched[1])
        if provider is None:
            if not is_secret(name):
                return matched[0]
            raise BadReference(f"{name} refers to {matched[0]}, and config.providers names no provider {matched[1]}")
        try:
            value = provider(matched[2] or "", matched[3])
        except BadReference as cause:
            raise BadReference(f"{name}: {cause}") from None
        if value is None:
            raise BadReference(
                f"{name} refers to {matched[0]}, and config provider {matched[1]} has no value for {matched[3]}: "
                "set it, or allow it in the provider's parameters"
            )
        return value

    return {name: _REFERENCE.sub(partial(resolve, name), value) for name, value in properties.items()}


_Provider = Callable[[str, str], str | None]
"""Returns the value for a path and a key, None without one."""


def _providers(
    properties: Mapping[str, str], read: Callable[[str], str], environment: Mapping[str, str]
) -> dict[str, _Provider]:
    """Return the providers by name. Raises BadReference for a class that Ottla does not have."""
    providers: dict[str, _Provider] = {}
    for name in filter(None, map(str.strip, properties.get("config.providers", "").split(","))):
        prefix = f"config.providers.{name}."
        kind = properties.get(f"{prefix}class", "").removeprefix(_PACKAGE)
        parameters = {
            key.removeprefix(f"{prefix}param."): value
            for key, value in properties.items()
            if key.startswith(f"{prefix}param.")
        }
        if kind == "EnvVarConfigProvider":
            providers[name] = _environment_provider(environment, parameters.get("allowlist.pattern"))
        elif kind in ("FileConfigProvider", "DirectoryConfigProvider"):
            allowed = [PurePath(path) for path in filter(None, parameters.get("allowed.paths", "").split(","))]
            providers[name] = (_file_provider if kind.startswith("File") else _directory_provider)(read, allowed)
        else:
            known = ", ".join(f"{_PACKAGE}{kind}ConfigProvider" for kind in ("File", "Directory", "EnvVar"))
            raise BadReference(
                f"Invalid value {kind or None} for configuration {prefix}class: it must be one of {known}"
            )
    return providers


def _environment_provider(environment: Mapping[str, str], pattern: str | None) -> _Provider:
    def value(path: str, key: str) -> str | None:
        del path
        if pattern is not None and not re.fullmatch(pattern, key):
            return None
        return environment.get(key)

    return value


def _file_provider(read: Callable[[str], str], allowed: list[PurePath]) -> _Provider:
    def value(path: str, key: str) -> str | None:
        if not _is_allowed(path, allowed):
            return None
        return read_properties(_read(read, path)).get(key)

    return value


def _directory_provider(read: Callable[[str], str], allowed: list[PurePath]) -> _Provider:
    def value(path: str, key: str) -> str | None:
        if not _is_allowed(path, allowed) or key in ("", ".", "..") or "/" in key:
            return None
        return _read(read, str(PurePath(path) / key))

    return value


def _is_allowed(path: str, allowed: list[PurePath]) -> bool:
    whole = PurePath(path)
    return not allowed or (".." not in whole.parts and any(whole.is_relative_to(directory) for directory in allowed))


def _read(read: Callable[[str], str], path: str) -> str:
    try:
        return read(path)
    except (OSError, UnicodeDecodeError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "it is not UTF-8 text"
        raise BadReference(f"Could not read properties from file {path}: {reason}") from None
