"""`ottla schemas`: checks of schemas in files, and the subjects of a Schema Registry."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ottla.cli.cluster_access import CommandFailed, json_option, profile_option, profile_services
from ottla.cli.command_group import CommandGroup
from ottla.cli.table import Column, echo_json, echo_table
from ottla.schemas.compatibility.levels import (
    LENIENT,
    LEVELS,
    POLICIES,
    Finding,
    ParsedSchema,
    first_failure,
    parse,
)
from ottla.schemas.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    Reference,
    Registered,
    RegistryError,
    Schema,
    SchemaNotFound,
    SchemaRegistry,
    UnsupportedSchema,
    request_body,
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
    """Check changed schemas, and show and change the subjects of a Schema Registry."""


def _registry_option(function: "FC") -> "FC":
    option: Callable[[FC], FC] = click.option(
        "--schema-registry",
        metavar="URL",
        help="Schema Registry, or a directory of schemas. [default: schema.registry.url of the profile]",
    )
    return option(function)


def _kind_option(function: "FC") -> "FC":
    option: Callable[[FC], FC] = click.option(
        "--type",
        "kind",
        type=click.Choice([AVRO, JSON, PROTOBUF], case_sensitive=False),
        help="Type of the schemas in files. [default: by the name, .avsc, .json or .proto]",
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
    "--policy",
    type=click.Choice(POLICIES, case_sensitive=False),
    help="LENIENT lets JSON objects gain and lose properties that are not required. [default: that of the subject, or "
    "STRICT]",
)
@_kind_option
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
    policy: str | None,
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
            policy = policy or registry.policy(name)
            earlier += _versions(registry, name, transitive=(level or "").upper().endswith("_TRANSITIVE"))
    level = (level or _DEFAULT_LEVEL).upper()
    if len(against) > 1 and not level.endswith("_TRANSITIVE"):
        raise click.UsageError(f"{level} compares with one version: name one with --against, or add _TRANSITIVE")
    schema = Schema(kind or _kind(file), _text(file))
    new = _parse(EarlierSchema(file, schema, referred or earlier[0].referred), strict=True)
    try:
        compared = [_parse(old, strict=False) for old in earlier]
        failure = first_failure(new, compared, level, is_lenient=(policy or "").upper() == LENIENT)
    except UnsupportedSchema as refused:
        raise CommandFailed(f"{file}: {refused}") from None
    _echo(file, earlier[failure[0] if failure else 0].name, level, failure[1] if failure else [], as_json=as_json)
    if failure:
        sys.exit(1)


@schemas.command("list")
@_registry_option
@profile_option
@json_option
def list_subjects(schema_registry: str | None, *, as_json: bool) -> None:
    """List the subjects."""
    with _registry_errors():
        subjects = _registry(schema_registry).subjects()
    if as_json:
        echo_json(subjects)
        return
    for subject in subjects:
        click.echo(subject)


@schemas.command("versions")
@click.argument("subject")
@_registry_option
@profile_option
@json_option
def versions(subject: str, schema_registry: str | None, *, as_json: bool) -> None:
    """List the versions of a subject, with id and type."""
    registry = _registry(schema_registry)
    with _registry_errors():
        registered = [(number, registry.version(subject, number)) for number in registry.versions(subject)]
    rows = [(number, version.id, version.schema.kind, len(version.schema.references)) for number, version in registered]
    columns = [Column(title) for title in ("VERSION", "ID", "TYPE", "REFERENCES")]
    if as_json:
        echo_json([dict(zip((column.name for column in columns), row, strict=True)) for row in rows])
    else:
        echo_table(columns, rows)


@schemas.command("get")
@click.argument("subject", required=False)
@click.option("--version", "number", type=click.IntRange(1), metavar="N", help="Version. [default: the latest]")
@click.option("--id", "schema_id", type=click.IntRange(1), metavar="N", help="Id of a schema, in place of a subject.")
@_registry_option
@profile_option
@json_option
def get(
    subject: str | None, number: int | None, schema_id: int | None, schema_registry: str | None, *, as_json: bool
) -> None:
    """Print the text of a schema."""
    if (subject is None) is (schema_id is None) or (number is not None and subject is None):
        raise click.UsageError("get needs SUBJECT, with --version N for another one than the latest, or --id N")
    registry = _registry(schema_registry)
    with _registry_errors():
        if subject is None or schema_id is not None:
            registered = Registered(schema_id or 0, registry.by_id(schema_id or 0))
        else:
            registered = registry.latest(subject) if number is None else registry.version(subject, number)
    if as_json:
        echo_json({"id": registered.id, **request_body(registered.schema)})
    else:
        click.echo(registered.schema.text)


@schemas.command("register")
@click.argument("subject")
@click.argument("file", metavar="FILE")
@_kind_option
@click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="NAME=SUBJECT:VERSION",
    help="Registered schema that FILE refers to by NAME; may be repeated.",
)
@click.option(
    "--normalize",
    is_flag=True,
    help="Register the normal form of the schema: texts that mean the same are one version.",
)
@_registry_option
@profile_option
@json_option
def register(
    subject: str,
    file: str,
    kind: str | None,
    references: tuple[str, ...],
    schema_registry: str | None,
    *,
    normalize: bool,
    as_json: bool,
) -> None:
    """Register the schema in FILE as the latest version of a subject, unless it is a version already."""
    schema = Schema(kind or _kind(file), _text(file), tuple(_registered_reference(text) for text in references))
    registry = replace(_registry(schema_registry), normalize=normalize)
    _echo_change(registry)
    with _registry_errors():
        number = registry.register(subject, schema)
        version = registry.version_of(subject, schema)
    if as_json:
        echo_json({"subject": subject, "version": version, "id": number})
    else:
        click.echo(f"{file} is version {version} of {subject}, with id {number}")


@schemas.command("export")
@click.argument("directory", metavar="DIRECTORY")
@_registry_option
@profile_option
def export(directory: str, schema_registry: str | None) -> None:
    """Write all schemas of the default context, with ids, versions and configs, into a new DIRECTORY."""
    from ottla.schemas import transfer

    with _registry_errors():
        copied = transfer.export(_registry(schema_registry), Path(directory))
    click.echo(f"{copied.versions} versions of {copied.subjects} subjects were written into {directory}")


@schemas.command("import")
@click.argument("directory", metavar="DIRECTORY")
@_registry_option
@profile_option
def import_directory(directory: str, schema_registry: str | None) -> None:
    """Register all schemas of DIRECTORY with their ids and versions; a registry must not have their subjects yet."""
    from ottla.schemas import transfer

    registry = _registry(schema_registry)
    _echo_change(registry)
    with _registry_errors():
        copied = transfer.import_into(registry, Path(directory))
    click.echo(f"{copied.versions} versions of {copied.subjects} subjects were imported from {directory}")


@schemas.command("delete")
@click.argument("subject")
@click.option("--version", "number", type=click.IntRange(1), metavar="N", help="Version. [default: all]")
@click.option("--permanent", is_flag=True, help="Make ids unreadable, too: records with them cannot be read any more.")
@_registry_option
@profile_option
def delete(subject: str, number: int | None, schema_registry: str | None, *, permanent: bool) -> None:
    """Delete a subject or a version of it; ids stay readable."""
    registry = _registry(schema_registry)
    _echo_change(registry)
    with _registry_errors():
        registry.delete(subject, number, permanent=permanent)
    shown = subject if number is None else f"version {number} of {subject}"
    click.echo(f"{shown} was deleted{' permanently' if permanent else ''}")


@schemas.command("config")
@click.argument("subject", required=False)
@click.option("--set", "level", type=click.Choice(LEVELS, case_sensitive=False), help="Level of compatibility.")
@click.option("--delete", "is_deletion", is_flag=True, help="Return to the default level.")
@_registry_option
@profile_option
def config(subject: str | None, level: str | None, schema_registry: str | None, *, is_deletion: bool) -> None:
    """Show or change the level of compatibility of a subject, or the default one."""
    registry = _registry(schema_registry)
    is_change = _is_change(level, is_deletion=is_deletion)
    if is_change:
        _echo_change(registry)
    with _registry_errors():
        if is_change:
            registry.set_compatibility(subject, level)
        click.echo(registry.compatibility(subject) or "NONE")


@schemas.command("mode")
@click.argument("subject", required=False)
@click.option(
    "--set",
    "value",
    type=click.Choice(["READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD"], case_sensitive=False),
    help="Mode.",
)
@click.option("--delete", "is_deletion", is_flag=True, help="Return to the default mode.")
@_registry_option
@profile_option
def mode(subject: str | None, value: str | None, schema_registry: str | None, *, is_deletion: bool) -> None:
    """Show or change the mode of a subject, or the default one."""
    registry = _registry(schema_registry)
    is_change = _is_change(value, is_deletion=is_deletion)
    if is_change:
        _echo_change(registry)
    with _registry_errors():
        if is_change:
            registry.set_mode(subject, value)
        click.echo(registry.mode(subject))


def _echo_change(registry: SchemaRegistry) -> None:
    click.echo(f"Changing the registry at {registry.address}", err=True)


def _is_change(value: str | None, *, is_deletion: bool) -> bool:
    if value is not None and is_deletion:
        raise click.UsageError("--set and --delete exclude each other")
    return value is not None or is_deletion


def _registered_reference(text: str) -> Reference:
    """Return the value of --reference of `register`. Raises UsageError."""
    name, _, registered = text.rpartition("=")
    subject, _, version = registered.rpartition(":")
    if not name or not subject or not version.isdecimal() or int(version) < 1:
        raise click.UsageError(f"--reference requires NAME=SUBJECT:VERSION, not {text!r}")
    return Reference(name, subject, int(version))


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


def _parse(named: EarlierSchema, *, strict: bool) -> ParsedSchema:
    try:
        return parse(named.schema, named.referred, strict=strict)
    except UnsupportedSchema as refused:
        raise CommandFailed(f"{named.name}: {refused}") from None


def _versions(registry: SchemaRegistry, subject: str, *, transitive: bool) -> Iterator[EarlierSchema]:
    """Return the versions of a subject to compare with, newest first."""
    for version in sorted(registry.versions(subject), reverse=True)[: None if transitive else 1]:
        schema = registry.version(subject, version).schema
        referred = {name: other.text for name, other in registry.referred(schema).items()}
        yield EarlierSchema(f"version {version} of {subject}", schema, referred)


def _registry(location: str | None, subject: str = "") -> SchemaRegistry:
    """Return the registry of the option or the profile. Raises CommandFailed, UsageError.

    subject  what may have been meant as a file
    """
    services = profile_services()
    location = location or services.get("schema.registry.url")
    if location is None and subject:
        raise CommandFailed(f"no file {subject}; if it is a subject, say of which registry with --schema-registry URL")
    if location is None:
        raise click.UsageError("which registry? --schema-registry URL, or schema.registry.url of a --profile")
    return SchemaRegistry(location=location, user_info=services.get("schema.registry.basic.auth.user.info"))


@contextmanager
def _registry_errors() -> Iterator[None]:
    try:
        yield
    except (RegistryError, SchemaNotFound, OSError) as failed:
        raise CommandFailed(" ".join(str(failed).split())) from None


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
