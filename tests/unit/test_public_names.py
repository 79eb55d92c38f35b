"""Public names of Ottla, which programs may import: a change of this list is a decision, never an accident."""

import ast
import inspect
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.requests.handlers import SERVED

SOURCES = Path(__file__).parents[2] / "src"

PUBLIC = {
    "ottla": {
        "__version__",
        "AbortTransactionSpec",
        "AccessControlEntry",
        "AccessControlEntryFilter",
        "AclBinding",
        "AclBindingFilter",
        "AclOperation",
        "AclPermissionType",
        "AclResourceType",
        "PatternType",
        "ResourcePattern",
        "ResourcePatternFilter",
        "AcknowledgeType",
        "Admin",
        "ConfigChange",
        "ConfigOperation",
        "ConfigResource",
        "EARLIEST",
        "ElectionType",
        "FeatureUpdate",
        "KafkaError",
        "LATEST",
        "NewPartitions",
        "NewTopic",
        "OffsetAndMetadata",
        "QuotaFilter",
        "Record",
        "ResourceType",
        "ScramMechanism",
        "ShareConsumer",
        "TopicPartition",
        "TopicPartitionReplica",
        "UpgradeType",
        "UserScramCredentialDeletion",
        "UserScramCredentialUpsertion",
        "Consumer",
        "Delivered",
        "GroupMetadata",
        "Producer",
        "sql",
    },
    "ottla.aio": {"Admin", "Consumer", "Producer", "ShareConsumer"},
    "ottla.client.config": {
        "BULK",
        "CONFIGS",
        "DEFAULT_PORT",
        "PARTITIONERS",
        "ClientConfig",
        "addresses",
        "config_of",
        "duration_ms",
    },
    "ottla.client.errors": {
        "BootstrapUnresolved",
        "BrokersUnreachable",
        "ConnectionLost",
        "CorruptBatch",
        "FencedError",
        "IllegalState",
        "InvalidClientConfig",
        "KafkaError",
        "LogTruncation",
        "NotAuthenticated",
        "NotAuthorized",
        "OffsetOutOfRange",
        "Permission",
        "RebootstrapRequired",
        "RecordTooLarge",
        "RequestTimedOut",
        "RetriableError",
        "STALE_CODES",
        "SequenceLost",
        "StaleMetadata",
        "TransactionAborted",
        "TopicRecreated",
        "UnknownTopic",
        "UnsupportedVersion",
        "error_for",
        "BufferExhausted",
        "NoOffset",
    },
    "ottla.schemas": {
        "AvroDeserializer",
        "AvroSerializer",
        "BadRecord",
        "Deserializer",
        "JSONDeserializer",
        "JSONSerializer",
        "KEY",
        "ProtobufDeserializer",
        "ProtobufSerializer",
        "Reference",
        "Registered",
        "RegistryError",
        "Schema",
        "SchemaNotFound",
        "SchemaRegistry",
        "SerializationContext",
        "Serializer",
        "UnsupportedSchema",
        "VALUE",
        "record_subject",
        "topic_record_subject",
        "topic_subject",
    },
    "ottla.spark": {"SESSION_CONFS"},
    "ottla.spark.java": {"OLDEST", "JavaMissing", "ensure_java", "parse_version", "version_of", "wrapped_home"},
    "ottla.spark.session": {"session_builder", "stop_session"},
    "ottla.testing": {"EmbeddedBroker", "Kafka", "KafkaCluster", "Security", "broker"},
    "ottla.testing.plugin": {
        "kafka",
        "kafka_class",
        "kafka_cluster",
        "kafka_config",
        "kafka_factory",
        "kafka_module",
        "kafka_session",
        "pytest_collection_modifyitems",
        "pytest_configure",
        "pytest_fixture_post_finalizer",
        "pytest_fixture_setup",
        "pytest_runtest_setup",
        "pytest_runtest_teardown",
    },
    "pyspark_ottla": {"DefaultSource"},
    "pyspark_ottla_delta": {"DefaultSource"},
}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax trees of all modules by name. They are not read when tests are collected, which each process does."""
    return {module_name(path): ast.parse(path.read_bytes()) for path in sorted(SOURCES.rglob("*.py"))}


def _targets(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module binds."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign) and "TypeVar(" not in ast.unparse(node.value)[:8]:
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def defined(tree: ast.Module) -> set[str]:
    return {name for node in tree.body for name in _targets(node)}


def imported(tree: ast.Module) -> set[str]:
    """The names that a module imports, those for type checkers alone among them."""
    guarded = [line for node in tree.body if isinstance(node, ast.If) for line in node.body]
    imports = [node for node in (*tree.body, *guarded) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {(alias.asname or alias.name).split(".")[0] for node in imports for alias in node.names}


@cache
def exported(tree: ast.Module) -> list[str] | None:
    """Return `__all__`, None if a module has no such list."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and _targets(node) == ["__all__"]:
            names = ast.literal_eval(node.value)
            assert isinstance(names, list)
            return names
    return None


def test_exported_names_are_defined_and_unique() -> None:
    for name, tree in modules().items():
        names = exported(tree)
        if names is not None:
            assert len(set(names)) == len(names), name
            assert set(names) <= defined(tree) | imported(tree), name


def test_a_list_of_exports_hides_nothing_that_others_use() -> None:
    """A module with `__all__` is not asked for anything else by Ottla itself."""
    for name, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module in modules():
                names = exported(modules()[node.module])
                asked = {alias.name for alias in node.names if f"{node.module}.{alias.name}" not in modules()}
                assert names is None or asked <= set(names), f"{name} imports {asked - set(names)} of {node.module}"


@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_names_are_these(name: str) -> None:
    tree = modules()[name]
    names = exported(tree)
    public = {symbol for symbol in defined(tree) if not symbol.startswith("_")} if names is None else set(names)
    assert public == PUBLIC[name]


def in_its_source(value: Any) -> str | None:
    """The docstring in the file: a compiled class has none of its own."""
    for node in modules()[value.__module__].body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == value.__name__:
            return ast.get_docstring(node)
    return None


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring(name: str) -> None:
    module = import_module(name)
    assert module.__doc__
    for public in PUBLIC[name]:
        value = getattr(module, public)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        assert value.__doc__ or in_its_source(value), f"{name}.{public}"
        if value.__module__ == name and inspect.isclass(value):
            for member, attribute in vars(value).items():
                if not member.startswith("_") and (inspect.isfunction(attribute) or isinstance(attribute, property)):
                    assert inspect.getdoc(getattr(value, member)), f"{name}.{public}.{member}"


def test_every_module_has_a_docstring() -> None:
    silent = [name for name, tree in modules().items() if tree.body and not ast.get_docstring(tree)]
    assert silent == []


def test_every_handler_is_in_the_table_and_the_reverse() -> None:
    files = {path.stem for path in (SOURCES / "ottla" / "broker" / "requests" / "handlers").glob("*.py")} - {"__init__"}
    modules = [served.module for served in SERVED.values()]
    assert sorted(modules) == sorted(files)
    for served in SERVED.values():
        assert callable(getattr(import_module(f"ottla.broker.requests.handlers.{served.module}"), served.module))
