"""Rows of messages: the elements of their innermost arrays, of which a client may send very many in one request.

A path names the arrays that lead to the rows, from the outside: ("topics", "partitions"). A message with many rows is decoded
and encoded in parts here, and a request with many rows can be divided into requests with few, whose responses are joined
again. Between two parts the caller may do something else.
"""

import struct
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import Any, Final, Generic, TypeVar

from ottla.protocol import codec
from ottla.protocol.context import NO_CONTEXT
from ottla.protocol.errors import NONE
from ottla.protocol.plan import Allowance, Plan, Step, begin_array, read_elements
from ottla.protocol.planning import Planner
from ottla.protocol.schema import UNLIMITED, Array, Message, Primitive, Request, Response, Struct
from ottla.protocol.wire import PeerError

S = TypeVar("S", bound=Struct)
M = TypeVar("M", bound=Message)
RowPath = tuple[str, ...]

ROWS_OF_PART: Final = 500
"""Most rows of a part: handling one takes some microseconds."""
_MALFORMED: Final = (struct.error, IndexError, OverflowError, MemoryError)


@cache
def path_in(cls: type[Message], paths: tuple[str, ...], version: int) -> RowPath:
    """Return the path of the version: of several, written "topics.partitions", the first whose arrays it has; else ()."""
    for path in paths:
        names: RowPath = tuple(path.split("."))
        inner: Any = cls
        for name in names:
            declared = next(field for field in inner.FIELDS if field.name == name)
            if version not in declared.versions:
                break
            inner = declared.type.element
        else:
            return names
    return ()


@cache
def response_path(cls: type[Response], version: int, requested: RowPath) -> RowPath:
    """Return the path of the rows of a response, one for each row of a request: arrays of the same names, or the first."""
    names: list[str] = []
    inner: type[Struct] = cls
    for requested_name in requested:
        lists = [
            field
            for field in inner.FIELDS
            if version in field.versions
            and isinstance(field.type, Array)
            and not isinstance(field.type.element, Primitive)
        ]
        if not lists:
            break
        declared = next((field for field in lists if field.name == requested_name), lists[0])
        names.append(declared.name)
        inner = declared.type.element
    return tuple(names)


def count_rows(message: Struct, path: RowPath, most: int = ROWS_OF_PART) -> int:
    """Return the number of rows, or one above `most`, from which on they are not counted; an element of an outer array without
    rows counts as one.
    """
    elements = getattr(message, path[0]) or ()
    if len(path) == 1 or len(elements) > most:
        return len(elements)
    count = 0
    for element in elements:
        count += max(1, count_rows(element, path[1:], most))
        if count > most:
            break
    return count


def _with_elements(message: S, name: str, elements: list[Any]) -> S:
    """Return a copy of a message with other elements of an array."""
    cls = type(message)
    copied = cls.__new__(cls)
    for declared in cls.FIELDS:
        setattr(copied, declared.name, getattr(message, declared.name))
    copied.unknown_tags = message.unknown_tags
    if isinstance(message, Request):
        copied.context = getattr(message, "context", NO_CONTEXT)  # type: ignore[attr-defined]
    setattr(copied, name, elements)
    return copied


def join(whole: Struct, part: Struct, path: RowPath, depth: int) -> None:
    """Add the rows of the response to a part, and what else it lists, such as nodes.

    depth  number of outer elements of the part, from the outside, that continue those at the end of the part before: 1 if
           its first topic is one whose partitions are in several parts
    """
    for declared in type(whole).FIELDS:
        if isinstance(declared.type, Array):
            elements, more = getattr(whole, declared.name), getattr(part, declared.name)
            if elements is None or not more:
                continue
            if declared.name != path[0]:
                elements.extend([element for element in more if element not in elements])
            elif depth and elements:
                join(elements[-1], more[0], path[1:], depth - 1)
                elements.extend(more[1:])
            else:
                elements.extend(more)


class _Level:
    """Arrays of one depth: the plans of the struct before and after its array, and the step of the array."""

    def __init__(self, cls: type[Struct], path: RowPath, planner: Planner) -> None:
        present = [field for field in cls.FIELDS if planner.present(field)]
        at = [field.name for field in present].index(path[0])
        self.name = path[0]
        self.head: Plan = planner.part(cls, present[:at], has_tags=False)
        self.array: Step = planner.step(present[at], tagged=False)
        self.tail: Plan = planner.part(cls, present[at + 1 :], has_tags=planner.flexible)
        self.tail_names = [field.name for field in (*present[at + 1 :], *planner.tagged(cls.FIELDS))] + ["unknown_tags"]
        self.has_fields_after = at + 1 < len(present)
        self.inner = _Level(present[at].type.element, path[1:], planner) if len(path) > 1 else None

    def read(
        self, data: bytes, p: int, allowance: Allowance, bare: dict[int, Any] | None = None
    ) -> Generator[None, None, tuple[Any, int]]:
        """Decode a struct, and yield after some rows; return it and the position after it.

        bare  None to keep the rows, otherwise elements that have further fields after their rows are put there, by position
        """
        made, p = self.head.read_part(data, p, allowance)
        count, p = begin_array(self.array, data, p, allowance)
        elements: list[Any] | None = [] if count >= 0 else None
        setattr(made, self.name, elements)
        left = count
        while left > 0:
            if self.inner is None:
                more, p = read_elements(self.array, data, p, min(ROWS_OF_PART, left), allowance)
                left -= len(more)
                yield
            else:
                begin = p
                element, p = yield from self.inner.read(data, p, allowance, bare)
                more = [element]
                left -= 1
                if left % ROWS_OF_PART == 0:  # they may have no rows, between which it is yielded too
                    yield
                if bare is not None and self.inner.has_fields_after:
                    bare[begin] = element
            if bare is None and elements is not None:
                elements += more
        p = self.read_tail(made, data, p, allowance)
        return made, p

    def count(self, data: bytes, p: int, allowance: Allowance, most: int, *, is_last: bool = True) -> tuple[int, int]:
        """Return the number of rows of a struct, see `count_rows`, and the position after it, unless it has more than `most`.

        is_last  no position is needed: the rows themselves are not read
        """
        _, p = self.head.read_part(data, p, allowance)
        count, p = begin_array(self.array, data, p, allowance)
        if count > most:
            return count, p
        rows = 0
        if self.inner is not None:
            for number in range(count):
                more, p = self.inner.count(data, p, allowance, most - rows, is_last=is_last and number == count - 1)
                rows += max(1, more)
                if rows > most:
                    return rows, p
        elif count > 0:
            rows = count
            if not is_last:
                _, p = read_elements(self.array, data, p, count, allowance)
        if not is_last:
            _, p = self.tail.read_part(data, p, allowance)
        return rows, p

    def read_tail(self, made: Any, data: bytes, p: int, allowance: Allowance) -> int:
        """Set the fields after the array, and return the position after them."""
        end, p = self.tail.read_part(data, p, allowance)
        for name in self.tail_names:
            setattr(made, name, getattr(end, name))
        return p

    def elements(
        self, data: bytes, p: int, allowance: Allowance, bare: dict[int, Any]
    ) -> Generator[tuple[Any, int, int, bool], None, int]:
        """Decode the array at `p`: yield its elements, one with many rows as several of its own kind, each with the number of
        its rows, its depth, see `join`, and whether it is one of several. Return the position after the array.

        bare  see `read`
        """
        count, p = begin_array(self.array, data, p, allowance)
        inner = self.inner
        if inner is None:
            while count > 0:
                more, p = read_elements(self.array, data, p, min(ROWS_OF_PART, count), allowance)
                count -= len(more)
                for element in more:
                    yield element, 1, 0, False
            return p
        for _ in range(count):
            begin = p
            head, p = inner.head.read_part(data, p, allowance)
            head = bare.get(begin, head)
            is_null = begin_array(inner.array, data, p, Allowance(UNLIMITED))[0] < 0
            rows: list[Any] = []
            size = depth = 0
            is_divided = is_alone = False
            pieces = inner.elements(data, p, allowance, bare)
            while True:
                try:
                    row, weight, its_depth, is_piece = next(pieces)
                except StopIteration as end:
                    p = end.value
                    break
                if rows and (size + weight > ROWS_OF_PART or is_piece or is_alone):
                    is_divided = True
                    yield _with_elements(head, inner.name, rows), size, depth, True
                    rows, size, depth = [], 0, 1 + its_depth
                rows.append(row)
                size += weight
                is_alone = is_piece
            if is_null:
                setattr(head, inner.name, None)
            else:
                setattr(head, inner.name, rows)
            p = inner.read_tail(head, data, p, allowance)
            yield head, max(size, 1), depth, is_divided
        return p


@cache
def _level(cls: type[Message], path: RowPath, version: int, *, positions: bool) -> _Level:
    return _Level(cls, path, Planner(version in cls.FLEXIBLE, version, positions=positions))


class EncodedMessage(Generic[M]):
    """Message with many rows that is decoded in parts: `positions` as in `codec.decode_positions`."""

    def __init__(
        self, cls: type[M], version: int, data: bytes, position: int, path: RowPath, *, positions: bool = False
    ) -> None:
        self._cls = cls
        self._version = version
        self._data = data
        self._position = position
        self._level = _level(cls, path, version, positions=positions)
        self._bare: dict[int, Any] = {}

    @property
    def has_many_rows(self) -> bool:
        """True if it has more rows than a part: it is decoded until there are as many. Raises PeerError."""
        try:
            count, _ = self._level.count(self._data, self._position, Allowance(self._cls.ELEMENTS), ROWS_OF_PART)
        except _MALFORMED as cause:
            raise self._malformed(cause) from None
        return count > ROWS_OF_PART

    def decode(self, *, keeps_rows: bool = True) -> Generator[None, None, M]:
        """Decode all of it, as `codec.decode` does; yields in between. Raises PeerError.

        keeps_rows  whether the message has its rows, otherwise they are checked only
        """
        allowance = Allowance(self._cls.ELEMENTS)
        try:
            bare = None if keeps_rows else self._bare
            made, end = yield from self._level.read(self._data, self._position, allowance, bare)
        except _MALFORMED as cause:
            raise self._malformed(cause) from None
        if end > len(self._data):
            raise PeerError(f"{self._cls.__name__} version {self._version} is cut off")
        message: M = made
        return message

    def parts(self, message: M) -> Iterator[tuple[M, int]]:
        """Yield copies of the decoded message, which has no rows itself, with up to ROWS_OF_PART of them, and the depth, see
        `join`: these are decoded when the copy is asked for. A part of an element is alone in its message: a response may list
        elements in another order than its request.
        """
        allowance = Allowance(self._cls.ELEMENTS)
        _, p = self._level.head.read_part(self._data, self._position, allowance)
        name = self._level.name
        elements: list[Any] = []
        size = depth = 0
        is_alone = False
        for element, weight, its_depth, is_piece in self._level.elements(self._data, p, allowance, self._bare):
            if elements and (size + weight > ROWS_OF_PART or is_piece or is_alone):
                yield _with_elements(message, name, elements), depth
                elements, size = [], 0
            if not elements:
                depth = its_depth
            elements.append(element)
            size += weight
            is_alone = is_piece
        if elements:
            yield _with_elements(message, name, elements), depth

    def _malformed(self, cause: Exception) -> PeerError:
        return PeerError(f"malformed {self._cls.__name__} version {self._version}: {cause}")


class _Encoders:
    """Encoders of a struct around an array: before it, of some of its elements, and after it."""

    def __init__(self, cls: type[Struct], path: RowPath, version: int, flexible: bool) -> None:
        self.name = path[0]
        self.path = path
        self.head, self.elements, self.tail = codec.encoders_around(cls, path[0], version, flexible)
        element = next(field for field in cls.FIELDS if field.name == path[0]).type.element
        self.inner = _Encoders(element, path[1:], version, flexible) if len(path) > 1 else None

    def write_elements(self, message: Struct, write: Callable[[bytes], None]) -> Iterator[None]:
        """Encode the elements of the array, and yield after some rows."""
        elements: list[Struct] = []
        size = 0
        for element in getattr(message, self.name):
            weight = 1 if self.inner is None else max(1, count_rows(element, self.inner.path, ROWS_OF_PART))
            if self.inner is not None and weight > ROWS_OF_PART:
                self.elements(elements, write)
                elements, size = [], 0
                self.inner.head(element, write, len(getattr(element, self.inner.name)))
                yield from self.inner.write_elements(element, write)
                self.inner.tail(element, write)
            else:
                elements.append(element)
                size += weight
            if size >= ROWS_OF_PART:
                self.elements(elements, write)
                elements, size = [], 0
                yield
        self.elements(elements, write)


@cache
def _encoders(cls: type[Message], path: RowPath, version: int) -> _Encoders:
    return _Encoders(cls, path, version, version in cls.FLEXIBLE)


class EncodedRows(Response):
    """Response whose rows are encoded; its other fields are not until it is sent, as the throttle time is set then.

    message  the response, perhaps without its rows
    errors   how often it has each error code
    """

    __slots__ = ("_count", "_encoders", "_rows", "errors", "message")

    def __init__(
        self, message: Response, count: int, rows: list[Any], errors: Counter[int], encoders: _Encoders
    ) -> None:
        self.message = message
        self.errors = errors
        self._count = count
        self._rows = rows
        self._encoders = encoders

    def pieces(self) -> list[Any]:
        """Return the whole response, as bytes and file regions."""
        pieces: list[Any] = []
        self._encoders.head(self.message, pieces.append, self._count)
        pieces += self._rows
        self._encoders.tail(self.message, pieces.append)
        return pieces


def encode_in_parts(response: Response, version: int, path: RowPath) -> Generator[None, None, EncodedRows]:
    """Encode the rows of a response; yields in between. Raises UnsupportedField."""
    encoders = _encoders(type(response), path, version)
    rows: list[Any] = []
    pieces: list[Any] = []
    for _ in encoders.write_elements(response, pieces.append):
        rows += codec.joined(pieces)
        pieces.clear()
        yield
    rows += codec.joined(pieces)
    errors: Counter[int] = Counter()
    for errors_path in _error_paths(type(response)):
        yield from _count_in_parts(response, errors_path, errors)
    return EncodedRows(response, len(getattr(response, path[0])), rows, errors, encoders)


class _OpenStruct:
    """Struct that is encoded while elements are added to its array, the last of which may be open as well."""

    def __init__(self, struct: Struct, encoders: _Encoders, errors: Counter[int]) -> None:
        self.rows: list[bytes] = []
        self.count = 0
        self._struct = struct
        self._encoders = encoders
        self._errors = errors
        self._last: _OpenStruct | None = None
        self.add(struct, 0)

    def add(self, part: Struct, depth: int) -> None:
        """Add the elements of the next part; with a depth the first of them continues the last one."""
        encoders, elements = self._encoders, getattr(part, self._encoders.name)
        if depth and self._last is not None and elements:
            first = elements[0]
            self._last.take_error(first)
            self._last.add(first, depth - 1)
            elements = elements[1:]
        if not elements:
            return
        self.close_last()
        self.count += len(elements)
        if encoders.inner is None or getattr(elements[-1], encoders.inner.name) is None:
            self._write(elements)
        else:
            self._write(elements[:-1])
            self._last = _OpenStruct(elements[-1], encoders.inner, self._errors)

    def take_error(self, part: Struct) -> None:
        """Take the error of a part of this struct, unless an earlier part had one: its rows are missing then."""
        struct: Any = self._struct
        code = getattr(part, "error_code", None)
        if code is None:
            return
        self._errors[code] -= 1  # a struct counts once
        if struct.error_code == NONE != code:
            self._errors[NONE] -= 1
            self._errors[code] += 1
            for name in ("error_code", "error_message"):
                if hasattr(struct, name):
                    setattr(struct, name, getattr(part, name))

    def _write(self, elements: list[Any]) -> None:
        pieces: list[bytes] = []
        self._encoders.elements(elements, pieces.append)
        self.rows.append(b"".join(pieces))

    def close_last(self) -> None:
        """Encode what is open of the last element."""
        last, self._last = self._last, None
        if last is not None:
            last.close_last()
            pieces: list[bytes] = []
            last._encoders.head(last._struct, pieces.append, last.count)
            pieces += last.rows
            last._encoders.tail(last._struct, pieces.append)
            self.rows.append(b"".join(pieces))


class JoinedResponse:
    """The responses to the parts of a request, as one that is encoded as it grows. Raises UnsupportedField.

    keeps_rows  whether `EncodedRows.message` has its rows
    """

    def __init__(self, first: Response, version: int, path: RowPath, *, keeps_rows: bool = False) -> None:
        self._message = first
        self._path = path
        self._errors: Counter[int] = Counter()
        count_errors(first, self._errors)
        self._encoders = _encoders(type(first), path, version)
        self._open = _OpenStruct(first, self._encoders, self._errors)
        self._keeps_rows = keeps_rows
        if not keeps_rows:
            setattr(first, path[0], [])

    def add(self, part: Response, depth: int) -> None:
        """Add the rows of the response to the next part, and what else it lists; for `depth` see `join`."""
        count_errors(part, self._errors)
        if hasattr(part, "error_code"):
            self._errors[part.error_code] -= 1
        self._open.add(part, depth)
        if not self._keeps_rows:
            setattr(part, self._path[0], [])
        join(self._message, part, self._path, depth)

    def end(self) -> EncodedRows:
        """Return the response."""
        self._open.close_last()
        return EncodedRows(self._message, self._open.count, self._open.rows, +self._errors, self._encoders)


def count_errors(response: Response, errors: Counter[int]) -> None:
    """Count the error codes of a response."""
    for path in _error_paths(type(response)):
        _count_errors(response, path, errors)


@cache
def _error_paths(struct: Any) -> tuple[RowPath, ...]:
    """Return the fields that lead to the error codes of a struct."""
    paths: list[RowPath] = []
    for declared in struct.FIELDS:
        if declared.name == "error_code":
            paths.append(("error_code",))
        elif isinstance(declared.type, Array) and not isinstance(declared.type.element, Primitive):
            paths += ((declared.name, *path) for path in _error_paths(declared.type.element))
    return tuple(paths)


def _count_in_parts(value: Any, path: RowPath, errors: Counter[int]) -> Iterator[None]:
    """Do what `_count_errors` does, and yield after some elements."""
    if len(path) == 1:
        errors[value.error_code] += 1
        return
    for number, item in enumerate(getattr(value, path[0]) or (), 1):
        yield from _count_in_parts(item, path[1:], errors)
        if number % ROWS_OF_PART == 0:
            yield


def _count_errors(value: Any, path: RowPath, errors: Counter[int]) -> None:
    if len(path) == 1:
        errors[value.error_code] += 1
        return
    for item in getattr(value, path[0]) or ():
        _count_errors(item, path[1:], errors)
