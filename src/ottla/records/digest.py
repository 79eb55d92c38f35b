"""Digest of rows, independent of their order: equal for two runs of one query plan over the same offsets.

It is the sum of the CRCs of the rows, each encoded as a record: timestamp, key, value, headers. It detects a plan that is not
deterministic; it does not protect against forgery.
"""

from librt.strings import BytesWriter
from mypy_extensions import i64

from ottla.records.checksum import crc32c
from ottla.records.columns import RowEncoder


def digest_of(rows: RowEncoder) -> int:
    """Return the digest of all rows. Raises CorruptRecords and IndexError as `RowEncoder.measure`."""
    total: i64 = 0
    index: i64 = 0
    while index < rows.rows:
        body: i64 = rows.measure(index)
        out = BytesWriter()
        rows.write(out, body, rows.timestamp, 0)
        crc: int = crc32c(out.getvalue())
        row: i64 = crc
        total += row
        index += 1
    return total
