"""One record, for the places where records are looked at one by one (tests, coordinators, command line).

The hot paths never make these: produce validation walks bytes, the data source goes from bytes to columns.
"""

from typing import final

from mypy_extensions import i64

Header = tuple[str, bytes | None]


@final
class Record:
    """A record outside of its batch.

    offset     absolute offset in the partition
    timestamp  ms since the epoch, -1 for none
    key, value None is null
    """

    def __init__(
        self,
        offset: i64,
        timestamp: i64,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header] | None = None,
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self._headers = headers  # most records have none, and then no list is made

    @property
    def headers(self) -> list[Header]:
        """In order; a name may repeat (KIP-82)."""
        if self._headers is None:
            self._headers = []
        return self._headers

    def __repr__(self) -> str:
        return f"Record({self.offset}, {self.timestamp}, {self.key!r}, {self.value!r}, {self.headers!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and (
            (self.offset, self.timestamp, self.key, self.value, self.headers)
            == (other.offset, other.timestamp, other.key, other.value, other.headers)
        )

    def __hash__(self) -> int:
        return hash((self.offset, self.timestamp, self.key, self.value))
