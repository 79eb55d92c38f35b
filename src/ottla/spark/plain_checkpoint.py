"""Checkpoint of a stream of format("ottla") with plain offsets, which Spark's own Kafka connector continues from.

    offsets/N      v1, one line of JSON about the batch, then a line for each source: its end offset, "-" without one
    commits/N      the batches that are done
    sources/I/0    the start offset of source I, which the connector stores before the first batch: v1, a line of JSON

Offsets of this source have the connector's shape, but for the fields whose names begin with "#" (`stream_offset.py`). These are
removed. The start of a first batch that is not done is one of them: it becomes the connector's file of that source. Checksums
that Hadoop keeps for a file (.N.crc) would not fit any more, and go with it.

Each file is replaced at once, and what is plain stays as it is: after a crash the same call continues.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.spark.offsets import to_json
from ottla.spark.stream_offset import stream_offset

_VERSION: Final = "v1"
_NONE: Final = "-"
_HEAD: Final = 2
"""Lines before those of the sources."""


class InvalidCheckpoint(ValueError):
    """A directory that is no checkpoint, or has offsets that cannot be made plain."""


class Rewrite(NamedTuple):
    """File of a checkpoint, with the text that it gets."""

    path: Path
    text: str


def plain_rewrites(checkpoint: Path) -> list[Rewrite]:
    """Return the files that change. Raises InvalidCheckpoint, OSError."""
    log = checkpoint / "offsets"
    if not log.is_dir():
        raise InvalidCheckpoint(f"{checkpoint} is no checkpoint of a stream: it has no directory offsets")
    batches = _batches(log)
    if not batches:
        raise InvalidCheckpoint(f"{checkpoint} has no batch in offsets: there is nothing to write")
    done = _batches(checkpoint / "commits")
    rewrites = []
    for number in batches:
        path = log / str(number)
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) < _HEAD:
            raise InvalidCheckpoint(f"{path} is not complete: start the query once, so that Spark repairs it")
        version, about, *sources = lines
        if version != _VERSION:
            raise InvalidCheckpoint(f"{path} has version {version}: only {_VERSION} can be read")
        offsets = [_offset(path, line) for line in sources]
        plain = [line if own is None else _plain(own) for line, own in zip(sources, offsets, strict=True)]
        if plain != sources:
            rewrites.append(Rewrite(path, "\n".join([version, about, *plain])))
        if number == 0 and 0 not in done:
            rewrites += _starts(checkpoint, offsets)
    return rewrites


def _batches(log: Path) -> list[int]:
    """Return the numbers of the batches in a log of a checkpoint, sorted."""
    return sorted(int(path.name) for path in log.iterdir() if path.name.isdecimal()) if log.is_dir() else []


def _offset(path: Path, line: str) -> dict[str, Any] | None:
    """Return an offset of format("ottla"); None for one that is plain, or of another source. Raises InvalidCheckpoint."""
    try:
        offset = None if line == _NONE else json.loads(line)
    except ValueError:
        return None
    if not isinstance(offset, dict) or not any(name.startswith("#") for name in offset):
        return None
    if "#acquired" in offset:
        raise InvalidCheckpoint(
            f"{path} has the offsets of a share group: its position is stored by the group, and the connector has none"
        )
    return offset


def _plain(offset: dict[str, Any]) -> str:
    """Return an offset without the fields that are no topics, as the connector writes it."""
    return _text({name: value for name, value in offset.items() if not name.startswith("#")})


def _text(offset: dict[str, Any]) -> str:
    return json.dumps(offset, separators=(",", ":"), ensure_ascii=False)


def _starts(checkpoint: Path, offsets: list[dict[str, Any] | None]) -> Iterator[Rewrite]:
    """Yield the connector's files with the starts of a first batch that is not done."""
    for index, offset in enumerate(offsets):
        begins = stream_offset(offset).begins if offset is not None else None
        if begins is not None:
            # The connector writes a zero before the version, for readers older than Spark 2.1 (SPARK-19517).
            text = f"\0{_VERSION}\n{_text(dict(to_json(begins)))}"
            yield Rewrite(checkpoint / "sources" / str(index) / "0", text)


def write(rewrites: list[Rewrite]) -> None:
    """Replace the files. Raises OSError."""
    # Starts first: they are taken from offsets that are not plain yet.
    for path, text in sorted(rewrites, key=lambda rewrite: rewrite.path.parent.name == "offsets"):
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with written.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        written.replace(path)
