"""Plans of decoding, and the one loop that runs them.

A plan is the declaration of a struct in one version, translated to steps (`planning.py`): a code, and what the code needs.
The loop appends the decoded values of a struct, or of all structs of an array, to one flat list in the order of the steps;
a generated function of the plan turns the list into objects. That division is measured: a compiled loop decodes a number in
4 ns, where a call of `struct` takes 100, but sets an attribute of a message in 26 ns, where generated code takes 7.

Compiled with mypyc where there is a compiler. Interpreted, the loop gives the same results in twice the time of generated
decoders, which is why these (`decoder_source.py`) take its place where nothing is compiled.

Invalid input raises PeerError or IndexError. A count is compared with the bytes that are left before anything is allocated, and
elements are counted array by array, before they are decoded.
"""

import gc
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any, Final, final

from librt.strings import read_f64_be, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from ottla.protocol.schema import LEAST_OF_MANY, MOST_ELEMENTS, MOST_OF_MANY, MOST_TAGS, UNLIMITED
from ottla.protocol.wire import PeerError, read_uvarint

# Codes of fixed size; a tagged section is last.
BOOL: Final = 0
INT8: Final = 1
INT16: Final = 2
UINT16: Final = 3
INT32: Final = 4
UINT32: Final = 5
INT64: Final = 6
FLOAT64: Final = 7
UUID: Final = 8
STRUCT: Final = 9
NULLABLE_STRUCT: Final = 10
TAGGED_STRUCT: Final = 11  # a nullable one
TAGS: Final = 12
# Codes of values with a length or a count.
STRING: Final = 13
BYTES: Final = 14
REGION: Final = 15  # (start, end) in place of the bytes
INT32_ARRAY: Final = 16
VALUE_ARRAY: Final = 17
STRUCT_ARRAY: Final = 18

# The garbage collector is paused while more bytes than this are decoded (fewer have hardly the 700 objects after which it
# runs): all objects that a decoder creates are alive, yet the collector would go through them again and again. That took
# half of the time for 10,000 partitions, and a tenth of it for the 16 KB of 1,000 committed offsets.
_PAUSE: Final = 1 << 12

# The tagged sections of all structs of an array are mostly empty. It is tried whether they are: their values are then neither
# listed nor set one by one, which takes an eighth less time. If one is not, the array is decoded again, with these values, and
# so are the next arrays of the plan, without a trial: messages that use tags take hardly longer for it.
_ARRAYS_WITHOUT_TRIAL: Final = 64


@final
class Allowance:
    """Elements that the arrays and tagged sections of a message may still have."""

    def __init__(self, elements: i64) -> None:
        self.elements = elements

    def take(self, elements: i64) -> None:
        """Count elements that follow. Raises PeerError."""
        self.elements -= elements
        if self.elements < 0:
            raise PeerError("the arrays of the message have too many elements")


@final
class Step:
    """Step of a plan: decodes one field, or the tagged section.

    code      one of the codes above
    nullable  whether a negative length is null
    compact   whether the length is a varint
    plan      of a struct, or of the elements of an array
    tags      of a tagged section
    least     fewest bytes of an element of an array
    many      whether the elements of an array are not counted
    """

    def __init__(
        self,
        code: i64,
        nullable: bool = False,
        compact: bool = False,
        plan: "Plan | None" = None,
        tags: "Tags | None" = None,
        least: i64 = 1,
        many: bool = False,
    ) -> None:
        self.code = code
        self.nullable = nullable
        self.compact = compact
        self.plan = plan
        self.tags = tags
        self.least = least
        self.many = many


@final
class Tags:
    """Tagged section.

    numbers    of the tags, in the order of their fields
    plans      of one step each, for their values
    defaults   their values if they are not there; an empty list stands for a new one
    elsewhere  tags of other versions, which are rejected

    A dictionary of unknown tags, or None, follows the values.
    """

    def __init__(
        self,
        numbers: list[int],
        plans: "list[Plan]",
        defaults: list[Any],
        elsewhere: list[int],
        version: int,
    ) -> None:
        self.numbers = numbers
        self.plans = plans
        self.defaults = defaults
        self.elsewhere = elsewhere
        self.version = version


@final
class Plan:
    """Plan of a struct. `one` turns a list of values into an object, `many` a list of the values of several structs, and their
    number, into a list of objects, and `untagged` values without those of their tagged sections, all of which are empty.

    elements    see `Message.ELEMENTS`
    next_trial  number of arrays before the next one that is tried without the values of tagged sections
    """

    def __init__(self, steps: list[Step], elements: i64 = UNLIMITED) -> None:
        self.steps = steps
        self.elements = elements
        self.one: Callable[[list[Any]], Any] = list
        self.many: Callable[[list[Any], int], list[Any]] = _values
        self.untagged: Callable[[list[Any], int], list[Any]] = _values
        self.has_tags = bool(steps) and steps[-1].code == TAGS
        self.next_trial: i64 = 0

    def read_part(self, data: bytes, position: i64, allowance: Allowance) -> tuple[Any, int]:
        """Decode the struct at `position`, a part of a message; see `read`."""
        values: list[Any] = []
        end = _run(self, data, position, 1, values, allowance)
        return self.one(values), end

    def read(self, data: bytes, position: i64) -> tuple[Any, int]:
        """Decode the struct at `position`; return it and the position after it. Raises PeerError and IndexError."""
        values: list[Any] = []
        allowance = Allowance(self.elements)
        if len(data) - position < _PAUSE or not gc.isenabled():
            end = _run(self, data, position, 1, values, allowance)
            return self.one(values), end
        gc.disable()
        try:
            end = _run(self, data, position, 1, values, allowance)
            return self.one(values), end
        finally:
            gc.enable()


def _values(values: list[Any], _: int) -> list[Any]:
    return values


def _run(
    plan: Plan, data: bytes, p: i64, count: i64, out: list[Any], allowance: Allowance, untagged: bool = False
) -> i64:
    """Decode `count` structs from `p`, append their values to `out`, and return the position after them.

    untagged  leave out what follows from an empty tagged section; return -1 if one is not empty
    """
    steps = plan.steps
    for _ in range(count):
        for step in steps:
            code = step.code
            if code >= STRING:
                p = _sized(step, code, data, p, out, allowance)
            elif code == INT32:
                out.append(read_i32_be(data, p))
                p += 4
            elif code == INT16:
                out.append(read_i16_be(data, p))
                p += 2
            elif code == INT64:
                out.append(read_i64_be(data, p))
                p += 8
            elif code == INT8:
                byte: i64 = data[p]
                out.append(byte - 256 if byte > 127 else byte)
                p += 1
            elif code == BOOL:
                out.append(data[p] != 0)
                p += 1
            elif code == TAGS:
                if not untagged:
                    p = _tagged(step, data, p, out, allowance)
                elif data[p]:
                    return -1
                else:
                    p += 1
            else:
                p = _rare(step, code, data, p, out, allowance)
    return p


def _rare(step: Step, code: i64, data: bytes, p: i64, out: list[Any], allowance: Allowance) -> i64:
    if code == UUID:
        if p + 16 > len(data):
            raise IndexError("a uuid runs past the frame")
        out.append(data[p : p + 16])
        return p + 16
    if code == UINT16:
        short: int = read_i16_be(data, p)
        out.append(short & 0xFFFF)
        return p + 2
    if code == UINT32:
        number: int = read_i32_be(data, p)
        out.append(number & 0xFFFFFFFF)
        return p + 4
    if code == FLOAT64:
        out.append(read_f64_be(data, p))
        return p + 8
    if code == NULLABLE_STRUCT:
        p += 1
        if data[p - 1] > 127:
            out.append(None)
            return p
    elif code == TAGGED_STRUCT:
        present, p = read_uvarint(data, p)
        if present == 0:
            out.append(None)
            return p
    plan = step.plan
    assert plan is not None
    values: list[Any] = []
    p = _run(plan, data, p, 1, values, allowance)
    out.append(plan.one(values))
    return p


def _sized(step: Step, code: i64, data: bytes, p: i64, out: list[Any], allowance: Allowance) -> i64:
    """Decode a value that begins with a length or a count."""
    n: i64
    if step.compact:
        n = data[p]
        p += 1
        if n > 127:
            n, p = read_uvarint(data, p - 1)
        n -= 1
    elif code == STRING:
        short: int = read_i16_be(data, p)
        n = short
        p += 2
    else:
        long: int = read_i32_be(data, p)
        n = long
        p += 4
    if n < 0:
        if not step.nullable:
            raise PeerError("a length or count is negative where null is not allowed")
        out.append(None)
        return p
    if code >= INT32_ARRAY:
        return _array(step, code, data, p, n, out, allowance)
    end: i64 = p + n
    if end > len(data):
        raise IndexError("a value runs past the frame")
    if code == STRING:
        out.append(_text(data, p, end))
    elif code == BYTES:
        out.append(data[p:end])
    else:
        out.append((p, end))
    return end


def _text(data: bytes, p: i64, end: i64) -> str:
    """Decode a string; invalid UTF-8 becomes U+FFFD, as in Java."""
    try:
        return data[p:end].decode("utf-8")
    except UnicodeDecodeError:
        return data[p:end].decode("utf-8", "replace")


def _check_count(step: Step, count: i64, left: i64, allowance: Allowance) -> None:
    """Count the elements of an array before they are decoded. Raises PeerError.

    left  number of bytes that are left in the frame
    """
    if count > MOST_OF_MANY:
        raise PeerError(f"an array of {count} elements is larger than the {MOST_OF_MANY} allowed")
    if not step.many:
        allowance.take(count)
    if count * step.least > left:
        raise PeerError("an array runs past the frame")
    if step.code == STRUCT_ARRAY and count > MOST_ELEMENTS and count > MOST_ELEMENTS + left // LEAST_OF_MANY:
        raise PeerError(f"an array of {count} elements that are nearly all empty")


def begin_array(step: Step, data: bytes, p: i64, allowance: Allowance) -> tuple[int, int]:
    """Read the count of an array that is decoded in parts; return it, -1 for null, and the position of the first element.
    Raises PeerError and IndexError.
    """
    count: i64
    if step.compact:
        count, p = read_uvarint(data, p)
        count -= 1
    else:
        number: int = read_i32_be(data, p)
        count = number
        p += 4
    if count < 0 and not step.nullable:
        raise PeerError("a length or count is negative where null is not allowed")
    _check_count(step, max(count, 0), len(data) - p, allowance)
    return count, p


def read_elements(step: Step, data: bytes, p: i64, count: i64, allowance: Allowance) -> tuple[list[Any], int]:
    """Decode the next `count` elements of an array; return them and the position after them. Raises as `begin_array`."""
    values: list[Any] = []
    if step.code == INT32_ARRAY:
        for _ in range(count):
            values.append(read_i32_be(data, p))
            p += 4
        return values, p
    plan = step.plan
    assert plan is not None
    p = _run(plan, data, p, count, values, allowance)
    return (values if step.code == VALUE_ARRAY else plan.many(values, count)), p


def _array(step: Step, code: i64, data: bytes, p: i64, count: i64, out: list[Any], allowance: Allowance) -> i64:
    values: list[Any] = []
    _check_count(step, count, len(data) - p, allowance)
    if code == INT32_ARRAY:
        end: i64 = p + count * 4
        while p < end:
            values.append(read_i32_be(data, p))
            p += 4
        out.append(values)
    elif count == 0:
        out.append(values)
    else:
        plan = step.plan
        assert plan is not None
        if plan.has_tags and count > 1:
            if plan.next_trial > 0:
                plan.next_trial -= 1
            else:
                left = allowance.elements
                end = _run(plan, data, p, count, values, allowance, True)
                if end >= 0:
                    out.append(plan.untagged(values, count))
                    return end
                plan.next_trial = _ARRAYS_WITHOUT_TRIAL
                allowance.elements = left
                values = []
        p = _run(plan, data, p, count, values, allowance)
        if code == VALUE_ARRAY:
            out.append(values)
        elif count == 1:
            out.append([plan.one(values)])
        else:
            out.append(plan.many(values, count))
    return p


def _tagged(step: Step, data: bytes, p: i64, out: list[Any], allowance: Allowance) -> i64:
    """Decode a tagged section: append the values of its fields, then the unknown tags by number, or None."""
    tags = step.tags
    assert tags is not None
    count: i64 = data[p]
    if count:
        return _present_tags(tags, data, p, out, allowance)
    for default in tags.defaults:
        out.append([] if isinstance(default, list) else default)  # noqa: PERF401 - sections without tags create no list
    out.append(None)
    return p + 1


def _present_tags(tags: Tags, data: bytes, p: i64, out: list[Any], allowance: Allowance) -> i64:
    values: list[Any] = [[] if isinstance(default, list) else default for default in tags.defaults]
    unknown: dict[int, bytes] | None = None
    last = -1
    count, p = read_uvarint(data, p)
    if count > MOST_TAGS:
        raise PeerError(f"a tagged section of {count} fields is larger than the {MOST_TAGS} allowed")
    allowance.take(count)
    for _ in range(count):
        tag, p = read_uvarint(data, p)
        size, p = read_uvarint(data, p)
        end: i64 = p + size
        if tag <= last:
            raise PeerError("a tagged section is out of order")
        if end > len(data):
            raise IndexError("a tagged section runs past the frame")
        last = tag
        if tag in tags.numbers:
            at = tags.numbers.index(tag)
            one: list[Any] = []
            if _run(tags.plans[at], data, p, 1, one, allowance) != end:
                raise PeerError("a tagged field is not as long as it says")
            values[at] = one[0]
        elif tag in tags.elsewhere:
            raise PeerError(f"tag {tag} is not valid in version {tags.version}")
        else:
            if unknown is None:
                unknown = {}
            unknown[tag] = data[p:end]
        p = end
    out.extend(values)
    out.append(unknown)
    return p


COMPILED: Final = isinstance(_values, BuiltinFunctionType)
