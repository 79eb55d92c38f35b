"""Verdicts, kinds, places and texts of Avro schemas, compared with Java's Avro: 10,000 pairs, a schema and its mutation.

`--soak N` compares N times as many; `--seed` repeats what a failed test printed.
"""

import json
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.schemas import avro_text, avro_types
from ottla.schemas.avro_types import AvroType
from ottla.schemas.budget import Budget
from ottla.schemas.compatibility.avro import incompatibilities
from ottla.schemas.registry import UnsupportedSchema
from tests.oracles.oracles import CACHE, HERE, REFERENCE
from tests.unit.schemas.avro_dice import AvroDice
from tests.unit.schemas.test_avro_text import CANONICAL

JARS = REFERENCE / "avro-1.12.1"
PAIRS = 10_000
KINDS = (
    *("NAME_MISMATCH", "FIXED_SIZE_MISMATCH", "MISSING_ENUM_SYMBOLS"),
    *("READER_FIELD_MISSING_DEFAULT_VALUE", "TYPE_MISMATCH", "MISSING_UNION_BRANCH"),
)


class Java:
    """Java's Avro as a process."""

    def __init__(self, classes: Path) -> None:
        command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-Xss4m", "-cp", f"{classes}:{JARS}/*", "AvroOracle"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def ask(self, reader: str, writer: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([reader, writer]) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    if shutil.which("java") is None or shutil.which("javac") is None:
        pytest.skip("no java and javac on the PATH")
    if not (JARS / ".complete").exists():
        pytest.skip(f"no jars of Java's Avro in {JARS}: run bench/reference/avro-jars")
    classes, source = CACHE / "avro", HERE / "java" / "AvroOracle.java"
    compiled = classes / "AvroOracle.class"
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        classes.mkdir(parents=True, exist_ok=True)
        subprocess.run(["javac", "-d", str(classes), "-cp", f"{JARS}/*", str(source)], check=True)
    process = Java(classes)
    yield process
    process.close()


def parsed(text: str) -> AvroType | None:
    try:
        return avro_types.parse(text, {})
    except UnsupportedSchema:
        return None


def find_incompatibilities(reader: AvroType, writer: AvroType) -> list[list[str]] | None:
    """Return the incompatibilities that Ottla finds; None where Java raises."""
    result = [list(incompatibility) for incompatibility in incompatibilities(reader, writer, Budget())]
    return None if result and result[0][0] == "AMBIGUOUS_FIELD" else result


def test_pairs_are_judged_and_printed_as_by_javas_avro(java: Java, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--seed") or random.randrange(1 << 32)
    dice = AvroDice(random.Random(seed), plain=False)
    kinds: Counter[str] = Counter()
    judged = 0
    while judged < PAIRS * request.config.getoption("--soak"):
        texts = [json.dumps(schema) for schema in dice.pair()[:2]]
        answer = java.ask(texts[0], texts[1])
        where = f"--seed {seed}: reader {texts[0]} writer {texts[1]}: {answer}"
        reader, writer = (parsed(text) for text in texts)
        printed = [None if schema is None else avro_text.canonical(schema) for schema in (reader, writer)]
        assert printed == [answer["reader"], answer["writer"]], where
        if (
            reader is None or writer is None
        ):  # what one refuses the other refuses: two definitions of a name, for example
            continue
        judged += 1
        assert find_incompatibilities(reader, writer) == answer.get("found"), where
        kinds.update({kind for kind, *_ in answer.get("found", [["raised"]])} or {"compatible"})
    assert {kind for kind in (*KINDS, "compatible") if kinds[kind] < 100} == set(), kinds
    assert kinds["raised"] > 0


@pytest.mark.parametrize("text", CANONICAL)
def test_odd_text_is_printed_or_refused_as_by_javas_avro(text: str, java: Java) -> None:
    assert java.ask(text, text)["reader"] == CANONICAL[text]
