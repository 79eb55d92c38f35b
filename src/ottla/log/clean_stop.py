"""Checksums of the files that a clean start trusts: `index-checksums` in the directory of a partition.

After a clean stop nothing is scanned: where records are, when they were written, and which transactions were aborted is read
from files that have no checksums of their own in Kafka's format. A clean stop writes them down, with the sizes of the segments:

    {"version": 1, "end_offset": 334, "start_offset": 0, "epochs": [27, 1744], "segments":
      {"0": {"log": 3900, "gaps": false, "newest": [1700000000390, 51],
             "index": [64, 2311], "timeindex": [84, 911], "txnindex": [0, 0]}, ...}}
    9341876

A pair is the size of a file and its CRC-32C; the last line is that of the first. `newest` is the largest timestamp of a
segment, and the offset of its batch; `gaps` says whether offsets may be missing between its batches, as after a compaction. A
file that differs at the next start, or at its first use after it, is rebuilt from the records.

The file counts only after a clean stop that ended at its end offset: Apache Kafka may have written to the partition since then.
A log of one short segment has none, because its indexes are not read.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from ottla.environment.files import Store
from ottla.log.index import Checksum, checksum_of
from ottla.log.segment import Segment
from ottla.records.checksum import crc32c

CHECKSUMS: Final = "index-checksums"
_VERSION: Final = 1
_logger = logging.getLogger("ottla.log")


class SealedSegment(NamedTuple):
    """State of a segment at a clean stop.

    size    size of the .log file
    newest  largest timestamp, and the offset of its batch
    gaps    offsets may be missing between its batches
    """

    size: int
    gaps: bool
    newest: tuple[int, int]
    offset_index: Checksum
    time_index: Checksum
    transaction_index: Checksum


class CleanStop(NamedTuple):
    """State of a partition at a clean stop; `segments` by base offset."""

    end_offset: int
    start_offset: int
    epochs: Checksum
    segments: Mapping[int, SealedSegment]

    @classmethod
    def read(cls, store: Store, directory: Path, names: Sequence[str]) -> Self | None:
        """Return what the last clean stop has written; None if it has written nothing, or the file is damaged."""
        if CHECKSUMS not in names:
            return None
        text, _, sum_of_text = (store.read_text(directory / CHECKSUMS) or "").partition("\n")
        try:
            if int(sum_of_text) != crc32c(text.encode()):
                raise ValueError(sum_of_text)
            fields = json.loads(text)
            if fields["version"] != _VERSION:
                return None
            segments = {
                int(base): SealedSegment(
                    entry["log"],
                    entry["gaps"],
                    (entry["newest"][0], entry["newest"][1]),
                    *(Checksum(*entry[name]) for name in ("index", "timeindex", "txnindex")),
                )
                for base, entry in fields["segments"].items()
            }
            return cls(fields["end_offset"], fields["start_offset"], Checksum(*fields["epochs"]), segments)
        except (ValueError, KeyError, TypeError):
            _logger.warning("%s is damaged: the indexes beside it are used as they are", directory / CHECKSUMS)
            return None


def write(store: Store, directory: Path, segments: Sequence[Segment], end_offset: int, start_offset: int) -> Path:
    """Write the checksums of a log whose indexes are written; return the path of the file. Raises OSError."""
    path = directory / CHECKSUMS
    entries: dict[str, Any] = {}
    for segment in segments:
        entries[str(segment.base_offset)] = {
            "log": segment.size,
            "gaps": segment.has_gaps,
            "newest": [segment.max_timestamp, segment.max_timestamp_offset],
            "index": segment.index.checksum(),
            "timeindex": segment.time_index.checksum(),
            "txnindex": segment.transaction_index.checksum(),
        }
    epochs = checksum_of(bytes(store.mapped(directory / "leader-epoch-checkpoint")[:]))
    fields = {
        "version": _VERSION,
        "end_offset": end_offset,
        "start_offset": start_offset,
        "epochs": epochs,
        "segments": entries,
    }
    text = json.dumps(fields)
    store.write(path, f"{text}\n{crc32c(text.encode())}".encode())
    return path
