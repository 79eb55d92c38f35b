"""Copies of a registry's schemas: into a directory, and from a directory into another registry, with their ids and versions.

The directory is one that serializers, the console and Spark read as a registry, with more in its index:

    versions    {"orders-value": [1, 3]}         numbers of the versions of a subject that has not all from 1 on
    contracts   {"3": {"metadata": ..., "ruleSet": ...}}
    configs     {"orders-value": {"compatibilityLevel": "FULL"}}, "" for the default one
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.schemas.registry import INDEX, SUFFIXES, Reference, RegistryError, Schema, SchemaNotFound, SchemaRegistry

_IMPORT: Final = "IMPORT"
_CONTRACT: Final = ("metadata", "ruleSet")


class Copied(NamedTuple):
    """Number of subjects and versions that were copied."""

    subjects: int
    versions: int


class StoredVersion(NamedTuple):
    """A version of a subject.

    contract  metadata and rule set, empty without
    """

    subject: str
    number: int
    id: int
    schema: Schema
    contract: dict[str, Any]


def export(registry: SchemaRegistry, directory: Path) -> Copied:
    """Write the schemas of the default context into a directory that is new or empty. Raises RegistryError."""
    if directory.exists() and any(directory.iterdir()):
        raise RegistryError(f"{directory} is not empty: name a new directory")
    directory.mkdir(parents=True, exist_ok=True)
    index: dict[str, dict[str, Any]] = {
        part: {} for part in ("subjects", "references", "versions", "contracts", "configs")
    }
    count = 0
    subjects = [subject for subject in registry.subjects() if not subject.startswith(":.")]
    for subject in subjects:
        numbers = registry.versions(subject)
        versions = [_fetch_version(registry, subject, number) for number in numbers]
        index["subjects"][subject] = [version.id for version in versions]
        if numbers != list(range(1, len(numbers) + 1)):
            index["versions"][subject] = numbers
        for version in versions:
            (directory / f"{version.id}{SUFFIXES[version.schema.kind]}").write_text(
                version.schema.text, encoding="utf-8"
            )
            if version.schema.references:
                index["references"][str(version.id)] = [row._asdict() for row in version.schema.references]
            if version.contract:
                index["contracts"][str(version.id)] = version.contract
        count += len(versions)
    for subject in ("", *subjects):
        config = registry.config(subject or None)
        if config:
            index["configs"][subject] = config
    shown = {part: rows for part, rows in index.items() if rows or part == "subjects"}
    (directory / INDEX).write_text(json.dumps(shown, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return Copied(len(subjects), count)


def _fetch_version(registry: SchemaRegistry, subject: str, number: int) -> StoredVersion:
    registered, entity = registry.version(subject, number), registry.entity(subject, number)
    contract = {name: entity[name] for name in _CONTRACT if entity.get(name)}
    return StoredVersion(subject, number, registered.id, registered.schema, contract)


def import_into(registry: SchemaRegistry, directory: Path) -> Copied:
    """Register the schemas of a directory with their ids and versions, in mode IMPORT of their subjects, which must be new.

    Raises RegistryError, and SchemaNotFound if a schema is missing in the directory.
    """
    versions = list(_in_order(list(_versions(directory))))
    index = json.loads((directory / INDEX).read_text(encoding="utf-8"))
    subjects = sorted({version.subject for version in versions})
    known = sorted(set(subjects) & set(registry.subjects()))
    if known:
        raise RegistryError(
            f"{registry.address} has the subject {known[0]} already: schemas are imported into new subjects"
        )
    for subject in subjects:
        registry.set_mode(subject, _IMPORT)
    try:
        for version in versions:
            registry.import_version(version.subject, version.number, version.id, version.schema, version.contract)
    finally:
        for subject in subjects:
            registry.set_mode(subject, None)
    for subject, config in index.get("configs", {}).items():
        registry.set_config(subject or None, config)
    return Copied(len(subjects), len(versions))


def _versions(directory: Path) -> Iterator[StoredVersion]:
    """Yield the versions of a directory. Raises RegistryError, SchemaNotFound."""
    source = SchemaRegistry(location=str(directory))
    source.subjects()  # says what is wrong with the directory
    try:
        index = json.loads((directory / INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RegistryError(f"{directory}: no {INDEX}, which names the schemas of each subject") from None
    contracts, numbers = index.get("contracts", {}), index.get("versions", {})
    for subject, ids in index.get("subjects", {}).items():
        for number, schema_id in zip(numbers.get(subject) or range(1, len(ids) + 1), ids, strict=True):
            yield StoredVersion(subject, number, schema_id, source.by_id(schema_id), contracts.get(str(schema_id), {}))


def _in_order(versions: list[StoredVersion]) -> Iterator[StoredVersion]:
    """Yield versions after those that they refer to. Raises SchemaNotFound for a reference that leads nowhere."""
    done: set[tuple[str, int]] = set()
    while versions:
        later = []
        for version in versions:
            if all((subject, number) in done for _, subject, number in version.schema.references):
                done.add((version.subject, version.number))
                yield version
            else:
                later.append(version)
        if len(later) == len(versions):
            missing: Reference = next(row for row in later[0].schema.references if row[1:] not in done)
            raise SchemaNotFound(
                f"version {later[0].number} of {later[0].subject} refers to version {missing.version} of {missing.subject},"
                " which is not among the schemas"
            )
        versions = later
