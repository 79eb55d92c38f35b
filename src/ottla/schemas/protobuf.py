"""Protobuf schemas: .proto files as text, which protoc compiles, or as FileDescriptorProtos in base64."""

import base64
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from ottla.extras import install_command
from ottla.schemas.protoc import ERRORS, ProtocDied, ProtocProcess
from ottla.schemas.registry import UnsupportedSchema

_MAIN: Final = "schema.proto"
OWN_FILES: Final = "google/protobuf/"
"""Folder of the .proto files of the Protobuf library."""


def files_of(descriptor_set: bytes) -> tuple[str, dict[str, str]]:
    """Split a FileDescriptorSet into its last file as schema and the others as references, each in base64.

    Files of the Protobuf library are omitted. Raises UnsupportedSchema.
    """
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
        main = files[-1]
    except (DecodeError, IndexError):
        raise UnsupportedSchema("not a FileDescriptorSet, or an empty one") from None
    others = [file for file in files[:-1] if not file.name.startswith(OWN_FILES)]
    return in_base64(main), {file.name: in_base64(file) for file in others}


def in_base64_of(descriptor: Any) -> str:
    """Return the FileDescriptorProto of a generated file in base64."""
    return base64.b64encode(descriptor.serialized_pb).decode()


def in_base64(file: Any) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def file_of(text: str, referred: Mapping[str, str]) -> Any:
    """Return the descriptor of a .proto file, in a new pool. Raises UnsupportedSchema."""
    pool = descriptor_pool.DescriptorPool()
    known: dict[str, Any] = {}
    main = _descriptor(text)
    if main is None:
        compiled = compile_files(text, referred)
        main = compiled[-1]
        known = {file.name: file for file in compiled}
    else:
        for name, imported in referred.items():
            file = _descriptor(imported) or compile_files(imported, referred)[-1]
            file.name = name
            known[name] = file
    added: set[str] = set()

    def add(file: Any) -> None:
        for name in file.dependency:
            if name not in added:
                add(known.get(name) or _well_known(name))
        added.add(file.name)
        pool.Add(file)

    try:
        add(main)
        return pool.FindFileByName(main.name)
    except (TypeError, KeyError) as wrong:
        raise UnsupportedSchema(f"not a .proto file: {wrong}") from None


def _descriptor(text: str) -> Any:
    """Decode a schema that is a FileDescriptorProto in base64; None for a .proto text."""
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None
    file.name = file.name or _MAIN
    return file


def _well_known(name: str) -> Any:
    """Return a file of the Protobuf library, such as google/protobuf/timestamp.proto."""
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if not name.startswith(OWN_FILES):
        raise UnsupportedSchema(f"the .proto file imports {name}, which is not among the references of its schema")
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(importlib.import_module(module).DESCRIPTOR.serialized_pb)
    except ImportError:
        raise UnsupportedSchema(f"the .proto file imports {name}, which is not installed") from None


def compile_files(text: str, referred: Mapping[str, str]) -> list[Any]:
    """Compile a .proto file and its imports with protoc; that file is the last of the result."""
    made = _descriptor_set(text, tuple(referred.items()))
    return list(descriptor_pb2.FileDescriptorSet.FromString(made).file)


@lru_cache(maxsize=100)
def _descriptor_set(text: str, referred: tuple[tuple[str, str], ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (*referred, (_MAIN, text)):
            path = Path(folder, name)
            if ".." in PurePosixPath(name).parts or not path.is_relative_to(folder):
                raise UnsupportedSchema(f"a .proto file cannot be called {name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        made = Path(folder, "made")
        code, errors = _compile(Path(folder), made)
        if code:
            if "No module named" in errors:
                raise UnsupportedSchema(f"a .proto file needs protoc: {install_command('schema')}")
            messages = [line for line in errors.splitlines() if ".proto:" in line] or errors.splitlines()[-1:]
            raise UnsupportedSchema(f"not a .proto file: {' '.join(messages[:1]).replace(f'{folder}/', '')}")
        return made.read_bytes()


def _compile(folder: Path, made: Path) -> tuple[int, str]:
    """Compile the main file in a folder; return the exit code of protoc, and its errors."""
    kept = ProtocProcess.current()
    if kept is not None:
        try:
            return kept.compile(folder, _MAIN, made), (folder / ERRORS).read_text(encoding="utf-8", errors="replace")
        except ProtocDied:
            raise UnsupportedSchema(
                "not a .proto file: protoc has ended, or took too long, without an answer"
            ) from None
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
    done = subprocess.run(
        [*command, f"--descriptor_set_out={made}", _MAIN], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def messages_of(file: Any) -> dict[tuple[int, ...], str]:
    """Return the full names of a file's messages by their indexes, nested ones after the enclosing one."""
    described = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(described)
    return _names_of(described)


def names_in(text: str) -> dict[tuple[int, ...], str]:
    """Return the same for a schema that is a FileDescriptorProto in base64. Raises UnsupportedSchema for another text."""
    described = _descriptor(text)
    if described is None:
        raise UnsupportedSchema("the registry does not give the descriptor of the .proto file")
    return _names_of(described)


def _names_of(described: Any) -> dict[tuple[int, ...], str]:
    names: dict[tuple[int, ...], str] = {}

    def add(messages: Any, around: tuple[int, ...], path: str) -> None:
        for index, message in enumerate(messages):
            if not message.options.map_entry:
                names[(*around, index)] = f"{path}{message.name}"
                add(message.nested_type, (*around, index), f"{path}{message.name}.")

    add(described.message_type, (), f"{described.package}." if described.package else "")
    return names
