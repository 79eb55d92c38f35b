"""The steps of every client program, in all languages: the same over the same records.

A program is called with

    BOOTSTRAP TOPIC GROUP CODECS [name=value ...]

and writes one JSON object per line for each step: {"step": "fetch", "result": "pass" | "fail" | "skip", "why": "..."}.
CODECS is a comma-separated list; TOPIC does not exist yet and will have one partition. The steps, in this order, as far as
the client knows how:

    admin          create TOPIC-made with three partitions, see them, delete it
    produce CODEC  SHARE records for each codec: the first codec has records 0 to 99, the next 100 to 199, ...
    fetch          all of them from the beginning, each key and value compared
    offsets        earliest is 0, latest is the number of records
    commit         commit an offset for GROUP without being a member of it, and read it back
    group          join GROUP, read all from the beginning, commit, leave
    resume         SHARE more records; a second member of GROUP gets these and no others

Record n has the key "key n" and the value "value n " with n % 100 arbitrary bytes after it; every tenth value is null, with
the setting nulls=no empty: null values came with Kafka 0.8.1.
This module imports the standard library only: programs run in environments of their own.
"""

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

SHARE = 100
"""Records of one codec."""

Record = tuple[bytes, bytes | None]


def record(number: int, nulls: bool = True) -> Record:
    """Key and value of record `number`."""
    if number % 10 == 9:
        return b"key %d" % number, None if nulls else b""
    tail = bytes((number + 31 * index) & 0xFF for index in range(number % SHARE))
    return b"key %d" % number, b"value %d " % number + tail


def records(numbers: range, nulls: bool = True) -> list[Record]:
    return [record(number, nulls) for number in numbers]


class Task(NamedTuple):
    """The arguments of a program."""

    bootstrap: str
    topic: str
    group: str
    codecs: list[str]
    settings: dict[str, str]

    @property
    def nulls(self) -> bool:
        """Return whether every tenth value is null."""
        return self.settings.get("nulls") != "no"

    @property
    def lacks(self) -> list[str]:
        """Steps that this client cannot do."""
        return self.settings.get("lacks", "").split(",")

    @property
    def shares(self) -> list[tuple[str, range]]:
        """Each codec with the numbers of the records that it compresses."""
        return [(codec, range(SHARE * at, SHARE * at + SHARE)) for at, codec in enumerate(self.codecs)]

    @property
    def first(self) -> range:
        """All records that the produce steps wrote."""
        return range(SHARE * len(self.codecs))

    @property
    def more(self) -> range:
        """The records of the step `resume`."""
        return range(self.first.stop, self.first.stop + SHARE)


def task() -> Task:
    """The task that this program was called with."""
    bootstrap, topic, group, codecs, *settings = sys.argv[1:]
    return Task(bootstrap, topic, group, codecs.split(","), dict(setting.split("=", 1) for setting in settings))


def tell(step: str, result: str, why: str = "") -> None:
    sys.stdout.write(json.dumps({"step": step, "result": result, "why": why}) + "\n")
    sys.stdout.flush()


@contextmanager
def step(name: str) -> Iterator[None]:
    """Report an exception raised inside as the failure of this step, and continue with the next step."""
    try:
        yield
    except Exception as failure:  # noqa: BLE001  it is told
        traceback.print_exc()
        tell(name, "fail", f"{type(failure).__name__}: {failure}")
    else:
        tell(name, "pass")


def same(actual: list[Record], numbers: range, nulls: bool = True) -> None:
    """Raise AssertionError unless `actual` is the records of `numbers`, in order, byte for byte."""
    expected = records(numbers, nulls)
    for at, (got, want) in enumerate(zip(actual, expected, strict=False)):
        if got != want:
            raise AssertionError(f"record {at} is {got!r}, not {want!r}")
    if len(actual) != len(expected):
        raise AssertionError(f"{len(actual)} records, not {len(expected)}")


def equal(actual: object, expected: object) -> None:
    if actual != expected:
        raise AssertionError(f"{actual!r}, not {expected!r}")
