"""`ottla schemas`: schemas in files and registries."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ottla.cli.cluster_access import CommandFailed, json_option, profile_option, profile_services
from ottla.cli.command_group import CommandGroup
from ottla.cli.table import echo_json
from ottla.schemas.compatibility.levels import LEVELS, Finding, ParsedSchema, first_failure, parsed
from ottla.schemas.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    RegistryError,
    Schema,
    SchemaNotFound,
    SchemaRegistry,
    UnsupportedSchema,
)

if TYPE_CHECKING:
    from click.decorators import FC

_KINDS: Final = {".avsc": AVRO, ".json": JSON, ".proto": PROTOBUF}
_STDIN: Final = "-"
_DEFAULT_LEVEL: Final = "BACKWARD"


class EarlierSchema(NamedTuple):
    """A schema to compare with.

    name      file, or subject and version
    referred  texts of its references by name
    """

    name: str
    schema: Schema
    referred: Mapping[str, str]


@click.group("schemas", cls=CommandGroup)
def schemas() -> None:
    """Check schemas: whether a changed one still reads what was written with the one before, and the reverse."""


def _registry_option(function: "FC") -> "FC":
    option: Callable[[FC], FC] = click.option(
        "--schema-registry",
        metavar="URL",
        help="Schema Registry, or a directory of schemas. [default: schema.registry.url of the profile]",
    )
    return option(function)


@schemas.command("check")
@click.argument("file", metavar="FILE")
@click.option(
    "--against",
    multiple=True,
    required=True,
    metavar="FILE|SUBJECT",
    help="Schema before the change: a file, - for standard input, or a subject of --schema-registry. May be repeated, "
    "newest first.",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS, case_sensitive=False),
    help=f"Level of compatibility. [default: that of the subject, or {_DEFAULT_LEVEL}]",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice([AVRO, JSON, PROTOBUF], case_sensitive=False),
    help="Type of the schemas in files. [default: by the name, .avsc, .json or .proto]",
)
@click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="NAME=FILE",
    help="File of a schema that FILE refers to by NAME, after those that it refers to itself; may be repeated.",
)
@_registry_option
@profile_option
@json_option
def check(
    file: str,
    against: tuple[str, ...],
    level: str | None,
    kind: str | None,
    references: tuple[str, ...],
    schema_registry: str | None,
    *,
    as_json: bool,
) -> None:
    """Compare the schema in FILE with the one before, by the rules of Confluent's registry.

    Prints why they are not compatible and exits with 1.
    """
    referred = dict(_reference(text) for text in references)
    if [file, *against].count(_STDIN) > 1:
        raise click.UsageError("only one of the schemas can be standard input")
    earlier: list[EarlierSchema] = []
    for name in against:
        if name == _STDIN or Path(name).is_file():
            earlier.append(EarlierSchema(name, Schema(kind or _kind(file), _text(name)), referred))
            continue
        registry = _registry(schema_registry, name)
        with _registry_errors():
            level = level or registry.compatibility(name)
            earlier += _versions(registry, name, transitive=(level or "").upper().endswith("_TRANSITIVE"))
    level = (level or _DEFAULT_LEVEL).upper()
    if len(against) > 1 and not level.endswith("_TRANSITIVE"):
        raise click.UsageError(f"{level} compares with one version: name one with --against, or add _TRANSITIVE")
    schema = Schema(kind or _kind(file), _text(file))
    new = _parsed(EarlierSchema(file, schema, referred or earlier[0].referred), strict=True)
    try:
        failure = first_failure(new, [_parsed(old, strict=False) for old in earlier], level)
    except UnsupportedSchema as refused:
        raise CommandFailed(f"{file}: {refused}") from None
    _echo(file, earlier[failure[0] if failure else 0].name, level, failure[1] if failure else [], as_json=as_json)
    if failure:
        sys.exit(1)


def _echo(file: str, old: str, level: str, findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {**finding.incompatibility._asdict(), "reader": finding.reader, "message": finding.description}
            for finding in findings
        ]
        head = {"file": file, "against": old, "level": level, "is_compatible": not findings}
        echo_json({**head, "incompatibilities": rows})
        return
    for finding in findings:
        click.echo(f"{file}: {finding.description} ({finding.incompatibility.kind})")
    if findings:
        click.echo(f"ottla: {file} is not {level} compatible with {old}", err=True)
    else:
        click.echo(f"{file} is {level} compatible with {old}")


def _parsed(named: EarlierSchema, *, strict: bool) -> ParsedSchema:
    try:
        return parsed(named.schema, named.referred, strict=strict)
    except UnsupportedSchema as refused:
        raise CommandFailed(f"{named.name}: {refused}") from None


def _versions(registry: SchemaRegistry, subject: str, *, transitive: bool) -> Iterator[EarlierSchema]:
    """Return the versions of a subject to compare with, newest first."""
    for version in sorted(registry.versions(subject), reverse=True)[: None if transitive else 1]:
        schema = registry.version(subject, version).schema
        referred = {name: other.text for name, other in registry.referred(schema).items()}
        yield EarlierSchema(f"version {version} of {subject}", schema, referred)


def _registry(location: str | None, subject: str) -> SchemaRegistry:
    services = profile_services()
    location = location or services.get("schema.registry.url")
    if location is None:
        raise CommandFailed(f"no file {subject}; if it is a subject, say of which registry with --schema-registry URL")
    return SchemaRegistry(location=location, user_info=services.get("schema.registry.basic.auth.user.info"))


@contextmanager
def _registry_errors() -> Iterator[None]:
    try:
        yield
    except (RegistryError, SchemaNotFound) as failed:
        raise CommandFailed(str(failed)) from None


def _reference(text: str) -> tuple[str, str]:
    """Return name and text of --reference. Raises UsageError, CommandFailed."""
    name, equals, path = text.partition("=")
    if not name or not equals or not path:
        raise click.UsageError(f"--reference requires NAME=FILE, not {text!r}")
    return name, _text(path)


def _kind(file: str) -> str:
    """Return the type of a schema by the name of its file. Raises UsageError."""
    kind = _KINDS.get(Path(file).suffix)
    if kind is None:
        shown = "standard input" if file == _STDIN else f"{file}, whose name ends with none of {', '.join(_KINDS)},"
        raise click.UsageError(f"{shown} needs --type")
    return kind


def _text(path: str) -> str:
    """Return the text of a file, or of standard input for "-". Raises CommandFailed."""
    try:
        content = sys.stdin.buffer.read() if path == _STDIN else Path(path).read_bytes()
        return content.decode("utf-8-sig")
    except OSError as failed:
        raise CommandFailed(f"{path}: {failed.strerror or failed}") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{path}: not UTF-8 text") from None
