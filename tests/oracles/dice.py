"""Messages by chance: any value that the declaration of a field allows in a version, boundaries more often than the rest."""

import importlib
import pkgutil
import random
from typing import Any, Final, TypeVar

from ottla.protocol import messages
from ottla.protocol.schema import Array, Field, Message, Primitive, Struct

S = TypeVar("S", bound=Struct)

# Above every tag that is declared; Java keeps the very last int32 for "no tag".
UNKNOWN_TAGS: Final = (100, 5000, 3_000_000, 0x7FFFFFFE)
_SIZES: Final = (0, 1, 2, 5, 126, 127, 128, 300)


def declared_messages() -> dict[str, type[Message]]:
    """Every declared message by its name."""
    classes: dict[str, type[Message]] = {}
    for module in pkgutil.iter_modules(messages.__path__):
        for cls in vars(importlib.import_module(f"ottla.protocol.messages.{module.name}")).values():
            if isinstance(cls, type) and issubclass(cls, Message) and cls.__module__.endswith(f".{module.name}"):
                classes[cls.__name__] = cls
    return classes


class MessageDice:
    """Throws messages.

    unknown_tags  put undeclared tagged fields into flexible versions
    for_kio       error codes are ones that every release since 2.4 knows, times are whole seconds that datetime can hold
    defaults      the part of the fields that keep their default
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        unknown_tags: bool = True,
        for_kio: bool = False,
        defaults: float = 0.1,
    ) -> None:
        self.rng = rng
        self.unknown_tags = unknown_tags
        self.for_kio = for_kio
        self.defaults = defaults

    def message(self, cls: type[S], version: int) -> S:
        """A `cls` that can travel in `version`."""
        flexible = issubclass(cls, Message) and version in cls.FLEXIBLE
        return self._struct(cls, version, flexible=flexible)

    def _struct(self, cls: type[S], version: int, *, flexible: bool) -> S:
        values = {}
        for declared in cls.FIELDS:
            if version in declared.versions and self.rng.random() >= self.defaults:
                values[declared.name] = self._value(declared, version, flexible=flexible)
        made = cls(**values)
        for declared in cls.FIELDS:
            if (
                version in declared.versions
                and getattr(made, declared.name) is None
                and version not in declared.nullable
            ):
                setattr(made, declared.name, self._kind(declared, declared.type, version, flexible=flexible))
        if flexible and self.unknown_tags and self.rng.random() < 0.1:
            tags = self.rng.sample(UNKNOWN_TAGS, self.rng.randrange(1, 3))
            made.unknown_tags = {tag: self.rng.randbytes(self.rng.choice(_SIZES)) for tag in tags}
        return made

    def _value(self, declared: Field, version: int, *, flexible: bool) -> Any:
        if version in declared.nullable and self.rng.random() < 0.25:
            return None
        return self._kind(declared, declared.type, version, flexible=flexible)

    def _kind(self, declared: Field, kind: Any, version: int, *, flexible: bool) -> Any:
        rng = self.rng
        if isinstance(kind, Array):
            count = rng.choice((0, 1, 1, 2, 3))
            if isinstance(kind.element, Primitive) and kind.element.format and rng.random() < 0.1:
                count = rng.choice((126, 127, 128, 300))
            return [self._kind(declared, kind.element, version, flexible=flexible) for _ in range(count)]
        if not isinstance(kind, Primitive):
            return self._struct(kind, version, flexible=flexible)
        if kind.name == "bool":
            return rng.random() < 0.5
        if kind.name == "string":
            letters = rng.choice(("a", "é", "ab/ ", "\0", "\U0001f98a", "日本語"))
            return (letters * 300)[: rng.choice(_SIZES)]
        if kind.name in ("bytes", "records"):
            return rng.randbytes(rng.choice(_SIZES))
        if kind.name == "uuid":
            return rng.choice((bytes(16), rng.randbytes(16)))
        if kind.name == "float64":
            return rng.choice((0.0, 1.5, -1e300, rng.random()))
        return self._integer(declared.name, kind)

    def _integer(self, name: str, kind: Primitive) -> int:
        rng = self.rng
        if self.for_kio and "error_code" in name:
            return rng.randrange(-1, 82)
        bits = 8 * kind.size
        if self.for_kio and bits == 64 and any(word in name for word in ("_ms", "time", "age")):
            return rng.choice((0, 1000 * rng.randrange(1 << 30)))
        low = 0 if kind.name.startswith("u") else -(1 << (bits - 1))
        high = low + (1 << bits) - 1
        return rng.choice((low, high, 0, max(low, -1), 1, 127, rng.randint(low, high)))
