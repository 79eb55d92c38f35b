"""Schema registry as a broker asks it, and the result of a look-up."""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, Union

from ottla.records.schema_ids import SchemaKey

if TYPE_CHECKING:
    from ottla.schemas.id_lookup import FoundSchema

Query: TypeAlias = tuple[SchemaKey, bool]
"""Schema, and whether the names of its records are needed."""


class Source(Protocol):
    """A schema registry.

    changes  a number that is another one after a change of the registry; constant for one that does not report changes
    """

    @property
    def changes(self) -> int: ...

    def get(self, path: str) -> Any:
        """Return the response to a GET request. Called on a thread; raises SchemaNotFound, RegistryError."""


class Unchecked(NamedTuple):
    """Failed look-up: why, and whether it may succeed when it is repeated."""

    why: str
    is_retriable: bool


Found: TypeAlias = Union["FoundSchema", Unchecked, None]
