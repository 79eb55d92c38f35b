"""Every public name of confluent-kafka exists, with its parameters; one that is not built raises why."""

import ctypes
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import ottla.compat.confluent_kafka
from ottla.compat.librdkafka.codes import CODES
from ottla.compat.librdkafka.properties import PROPERTIES
from ottla.compat.missing import MODULES, NAMES, reason_of

_PAGE = Path(__file__).parents[2] / "docs" / "compat.md"
PACKAGES = ("confluent_kafka", "ottla.compat.confluent_kafka")
PLUMBING = {
    *("K", "V", "TYPE_CHECKING", "SharedClusterIdResolver"),
    *("build_serdes", "close_serdes", "pop_serde_props", "propagate_cluster_id_resolver"),
}
"""Names that modules without `__all__` import for themselves."""
CLASSES = [
    *(f"cimpl.{name}" for name in ("Producer", "Consumer", "Message", "TopicPartition", "KafkaError", "Uuid")),
    *("admin.AdminClient", "SerializingProducer", "DeserializingConsumer", "schema_registry.SchemaRegistryClient"),
    *(f"schema_registry.avro.Avro{name}" for name in ("Serializer", "Deserializer", "SerializerBuilder")),
    *("schema_registry.json_schema.JSONSerializer", "schema_registry.protobuf.ProtobufSerializer"),
]
_SERDE = {"configure_subject_name_strategy", "configure_validation_rules", "own_schema_registry_client"}
_SERDE |= {"set_cluster_id_resolver"}
LEFT_OUT: dict[str, set[str]] = {
    **dict.fromkeys(["AvroSerializer", "AvroDeserializer", "JSONSerializer", "ProtobufSerializer"], _SERDE),
    "AvroSerializerBuilder": {
        *("set_rule_config", "set_rule_registry", "set_schema", "set_schema_registry_client"),
        *("set_schema_registry_config", "set_serializer_config", "set_serializer_init", "set_to_dict"),
    },
}
"""Methods that the page does not promise; setters of builders are found by name."""
SIGNATURES = [
    *("SerializingProducer", "DeserializingConsumer", "schema_registry.SchemaRegistryClient", "schema_registry.Schema"),
    *(f"schema_registry.avro.Avro{name}" for name in ("Serializer", "Deserializer")),
    *(f"schema_registry.json_schema.JSON{name}" for name in ("Serializer", "Deserializer")),
    *(f"schema_registry.protobuf.Protobuf{name}" for name in ("Serializer", "Deserializer")),
    *(
        f"admin.{name}"
        for name in ("ConfigResource", "ConfigEntry", "AclBinding", "AclBindingFilter", "TopicDescription")
    ),
    *(f"admin.{name}" for name in ("ConsumerGroupDescription", "MemberDescription", "UserScramCredentialUpsertion")),
    *("Node", "ConsumerGroupTopicPartitions", "TopicPartitionInfo", "TopicCollection"),
]


class _Description(ctypes.Structure):
    _fields_ = (("code", ctypes.c_int), ("name", ctypes.c_char_p), ("text", ctypes.c_char_p))


def library() -> ctypes.CDLL:
    """Return librdkafka, as confluent-kafka's wheel brings it."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    paths = sorted(folder.glob("librdkafka*"))
    if not paths:
        pytest.skip("this confluent-kafka brings no librdkafka of its own")
    return ctypes.CDLL(str(paths[0]))


def submodules() -> list[str]:
    """Return the public modules of confluent-kafka, named without the package."""
    names = [""]
    for info in pkgutil.walk_packages(confluent_kafka.__path__, "confluent_kafka.", onerror=lambda _: None):
        name = info.name.partition(".")[2]
        if not any(part.startswith("_") for part in name.split(".")):
            names.append(name)
    return names


def module_of(package: str, name: str) -> Any:
    return importlib.import_module(f"{package}.{name}".rstrip("."))


def public(module: Any) -> set[str]:
    """Return the public names of a module that are confluent-kafka's own."""
    declared = getattr(module, "__all__", None)
    names = {name for name in declared or vars(module) if not name.startswith("_")}
    values = {name: getattr(module, name, None) for name in names}
    own = {name: str(getattr(value, "__module__", None) or "cimpl") for name, value in values.items()}
    return {
        name
        for name, value in values.items()
        if not inspect.ismodule(value) and own[name].startswith(("cimpl", "confluent_kafka")) and name not in PLUMBING
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", submodules())
def test_every_public_name_exists(name: str) -> None:
    """It works, or it is in the table of names that are not built; so is every module."""
    try:
        theirs = module_of("confluent_kafka", name)
    except ImportError:  # it needs a package that is not here
        theirs = None
    if reason_of(name) is not None:
        with pytest.raises(ImportError):
            module_of("ottla.compat.confluent_kafka", name)
        return
    ours = module_of("ottla.compat.confluent_kafka", name)
    assert theirs is None or {public_name for public_name in public(theirs) if not hasattr(ours, public_name)} == set()


@pytest.mark.parametrize("module", NAMES)
def test_a_name_that_is_not_built_raises_the_reason(module: str) -> None:
    ours = module_of("ottla.compat.confluent_kafka", module)
    for name, reason in NAMES[module].items():
        stand_in = getattr(ours, name)
        with pytest.raises(NotImplementedError, match=f"^{name}: {re.escape(reason)}$"):
            stand_in()
        with pytest.raises(NotImplementedError, match=f"^{name}: {re.escape(reason)}$"):
            type("Sub", (stand_in,), {})


def test_the_page_lists_what_is_not_built() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.+?) \|$", _PAGE.read_text("utf-8"), re.MULTILINE)
    listed = {(module, name, why) for module, names, why in rows for name in re.findall(r"`(\w+)`", names)}
    whole = {(module, why) for module, names, why in rows if names == "all"}
    named = {
        (module or "confluent_kafka", name, reason) for module, its in NAMES.items() for name, reason in its.items()
    }
    assert listed == named
    assert whole == set(MODULES.items())


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_methods_of_the_library(name: str) -> None:
    path, _, kind = name.rpartition(".")
    theirs, ours = (getattr(module_of(package, path), kind) for package in PACKAGES)
    missing = {member for member in dir(theirs) if not member.startswith("_") and not hasattr(ours, member)}
    assert missing <= LEFT_OUT.get(kind, set())


@pytest.mark.parametrize("name", ["SerializingProducer", "DeserializingConsumer"])
def test_classes_take_the_types_of_key_and_value(name: str) -> None:
    client = getattr(ottla.compat.confluent_kafka, name)[str, int](
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    )
    assert type(client).__name__ == name
    client.close()


@pytest.mark.parametrize("name", SIGNATURES)
def test_parameters_are_those_of_the_library(name: str) -> None:
    path, _, kind = name.rpartition(".")
    theirs, ours = (getattr(module_of(package, path), kind) for package in PACKAGES)
    methods = ["__init__", *(member for member in dir(theirs) if not member.startswith("_") and hasattr(ours, member))]
    for method in methods:
        expected, actual = (parameters(getattr(kind_of, method)) for kind_of in (theirs, ours))
        is_built = not str(getattr(ours, method).__doc__).startswith("Raise NotImplementedError")
        assert expected is None or actual is None or expected == actual or not is_built, method


def parameters(function: Any) -> list[str] | None:
    """Return the names of parameters; None for a class's attribute, or a function of C."""
    try:
        return [name for name in inspect.signature(function).parameters if name not in ("self", "args", "kwargs")]
    except (TypeError, ValueError):
        return None


def test_error_codes_are_those_of_the_library() -> None:
    loaded = library()
    rows, count = ctypes.POINTER(_Description)(), ctypes.c_size_t()
    loaded.rd_kafka_get_err_descs(ctypes.byref(rows), ctypes.byref(count))
    theirs = {row.code: (row.name.decode(), (row.text or b"").decode()) for row in rows[: count.value] if row.name}
    theirs = {code: row for code, row in theirs.items() if row[0] not in ("_BEGIN", "_END")}
    assert theirs == CODES


def test_properties_are_those_of_the_library(tmp_path: Path) -> None:
    loaded, libc = library(), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    stream = libc.fopen(str(tmp_path / "properties").encode(), b"w")
    loaded.rd_kafka_conf_properties_show(ctypes.c_void_p(stream))
    libc.fclose(ctypes.c_void_p(stream))
    rows = [line.split("|") for line in (tmp_path / "properties").read_text().splitlines() if line.count("|") >= 4]
    theirs: dict[str, tuple[str, str]] = {}
    for cells in rows:
        if "Type: " in cells[-1] and not cells[0].startswith(("Property", "-")):
            theirs.setdefault(cells[0].strip(), (cells[1].strip(), cells[2].strip().replace(" ", "")))
    assert set(theirs) == set(PROPERTIES)
    for name, (role, bounds) in theirs.items():
        row = PROPERTIES[name]
        assert row.role == role, name
        if row.kind != "string" and row.bounds:
            assert row.bounds == bounds, name
