"""Builders of serializers, and the variants for asyncio, made from the serializers.

A variant for asyncio calls the blocking one in a thread: an event loop never waits for a registry.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Self

from ottla.compat.confluent_kafka.schema_registry.client import SchemaRegistryClient
from ottla.compat.confluent_kafka.serialization import DeserializerBuilder, SerializerBuilder


def build_serde(
    schema_registry_client: Any,
    schema_registry_conf: dict[str, Any] | None,
    construct: Callable[[Any], Any],
    init: Callable[[Any], Any] | None = None,
) -> Any:
    """Return what `construct` makes of a client, or of a new client with these configs. Raises ValueError for both."""
    if schema_registry_client is not None and schema_registry_conf is not None:
        raise ValueError("Cannot specify both a Schema Registry client and a configuration; use one or the other")
    client = schema_registry_client
    if schema_registry_conf is not None:
        client = SchemaRegistryClient.new_client(schema_registry_conf)
    serde = construct(client)
    if init is not None:
        init(serde)
    return serde


class _Builder:
    """Builder of a serializer, with a setter for each value."""

    serde: ClassVar[Any]
    arguments: ClassVar[dict[str, str]]

    def __init__(self, *args: Any, **values: Any) -> None:
        names = self._names()
        if len(args) > len(names) or not values.keys() <= set(names):
            raise TypeError(f"{type(self).__name__} takes {', '.join(names)}")
        self._values = dict(zip(names, args, strict=False)) | values

    @classmethod
    def _names(cls) -> list[str]:
        kind = "serializer" if issubclass(cls, SerializerBuilder) else "deserializer"
        return ["schema_registry_config", "schema_registry_client", *cls.arguments, f"{kind}_init"]

    def __getattr__(self, name: str) -> Any:
        """Return the setter of a value."""
        field = name.removeprefix("set_")
        if field == name or field not in self._names():
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def set_value(value: Any) -> Any:
            self._values[field] = value
            return self

        return set_value

    def _construct(self, client: Any) -> Any:
        known = {argument: self._values[name] for name, argument in self.arguments.items() if name in self._values}
        if "message_type" in self.arguments and self._values.get("message_type") is None:
            raise ValueError("Protobuf serializer requires a message type; call set_message_type()")
        missing = {} if "schema_str" not in self.arguments.values() else {"schema_str": None}
        return self.serde(**{**missing, **known, "schema_registry_client": client})

    def build(self, conf: dict[str, Any], is_key: bool) -> Any:
        """Return the serializer, and the configs of the client. Raises ValueError."""
        del is_key
        client, config = (self._values.get(f"schema_registry_{name}") for name in ("client", "config"))
        return build_serde(client, config, self._construct, self._values.get(self._names()[-1])), dict(conf)


def builder(serde: type[Any], **arguments: str) -> Any:
    """Return the builder of a serializer.

    arguments  names of the builder's values, and the serializer's arguments that they are
    """
    base = SerializerBuilder if serde.__name__.endswith("Serializer") else DeserializerBuilder
    attributes = {"serde": serde, "arguments": arguments, "__doc__": f"Builder of {serde.__name__}."}
    return type(f"{serde.__name__}Builder", (_Builder, base), attributes)


class AsyncSchemaRegistryClient:
    """Client of a schema registry for asyncio: the methods of SchemaRegistryClient as coroutines."""

    def __init__(self, conf: dict[str, Any]) -> None:
        self._client = SchemaRegistryClient(conf)

    @staticmethod
    def new_client(conf: dict[str, Any]) -> "AsyncSchemaRegistryClient":
        """Return a client."""
        return AsyncSchemaRegistryClient(conf)

    def config(self) -> dict[str, Any]:
        """Return the configs of the client."""
        return self._client.config()

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return a method of the client as a coroutine function."""
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self._client, "close" if name == "aclose" else name)
        return lambda *args, **named: asyncio.to_thread(method, *args, **named)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()


class _AsyncSerde:
    """Serializer for asyncio: `await` makes it, and each call of it."""

    serde: ClassVar[Any]
    _inner: Any

    def __new__(cls, *args: Any, **named: Any) -> Any:
        return cls._create(
            [_blocking(value) for value in args], {name: _blocking(value) for name, value in named.items()}
        )

    @classmethod
    async def _create(cls, args: list[Any], named: dict[str, Any]) -> Any:
        made = object.__new__(cls)
        made._inner = await asyncio.to_thread(cls.serde, *args, **named)
        return made

    async def __call__(self, *args: Any, **named: Any) -> Any:
        """Return what the blocking serializer returns."""
        return await asyncio.to_thread(self._inner, *args, **named)

    async def aclose(self) -> None:
        """Do nothing."""

    close = aclose


def _blocking(value: Any) -> Any:
    return value._client if isinstance(value, AsyncSchemaRegistryClient) else value


def asynchronous(serde: type[Any]) -> Any:
    """Return the variant of a serializer for asyncio."""
    attributes = {"serde": serde, "__doc__": f"{serde.__name__} for asyncio."}
    return type(f"Async{serde.__name__}", (_AsyncSerde,), attributes)


def asynchronous_builder(blocking: Any, serde: Any) -> Any:
    """Return the variant of a builder for asyncio."""

    async def build(self: Any, conf: dict[str, Any], is_key: bool) -> Any:
        made, left = blocking.build(self, conf, is_key)
        return await made, left

    attributes = {"serde": serde, "build": build, "__doc__": f"Builder of {serde.__name__}."}
    return type(f"{serde.__name__}Builder", (blocking,), attributes)
