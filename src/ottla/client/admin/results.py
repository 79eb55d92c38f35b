"""Results of an admin request, by topic, group, partition or other resource."""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from ottla.client.errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")


class Results(Mapping[K, V], Generic[K, V]):
    """Results and errors of a request by resource: `results[key]` returns the result or raises the error.

    errors  errors of the resources that failed
    """

    def __init__(self, values: Mapping[K, V] | None = None, errors: Mapping[K, KafkaError] | None = None) -> None:
        self._values: dict[K, V] = dict(values or {})
        self.errors: dict[K, KafkaError] = dict(errors or {})

    def put(self, key: K, value: V, error: KafkaError | None = None) -> None:
        """Set the value of a key, or its error if there is one."""
        if error is None:
            self._values[key] = value
            self.errors.pop(key, None)
        else:
            self.errors[key] = error
            self._values.pop(key, None)

    def __getitem__(self, key: K) -> V:
        error = self.errors.get(key)
        if error is not None:
            raise error
        return self._values[key]

    def __iter__(self) -> Iterator[K]:
        yield from self._values
        yield from self.errors

    def __len__(self) -> int:
        return len(self._values) + len(self.errors)

    def __contains__(self, key: object) -> bool:
        return key in self._values or key in self.errors

    @property
    def successes(self) -> dict[K, V]:
        """Return the results of the resources without an error."""
        return dict(self._values)

    def check(self) -> "Results[K, V]":
        """Raise the first error, if there is any; return the results otherwise."""
        for error in self.errors.values():
            raise error
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Results):
            return NotImplemented
        return self._values == other._values and _texts(self.errors) == _texts(other.errors)

    __hash__ = None  # type: ignore[assignment]  # results can be changed

    def __repr__(self) -> str:
        return f"Results({self._values!r}, errors={self.errors!r})"


def _texts(errors: Mapping[K, KafkaError]) -> dict[K, tuple[type[KafkaError], str, int]]:
    """Return what can be compared of errors."""
    return {key: (type(error), str(error), error.code) for key, error in errors.items()}
