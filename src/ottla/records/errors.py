"""Errors of record batches.

CorruptRecords      invalid records: truncated, corrupted, bad compressed data
+-- BeyondLimit     decompressed size above the limit
+-- MalformedRecord invalid record in decompressed data
"""


class CorruptRecords(Exception):
    """Bytes are not valid records; the message names the violated rule."""


class BeyondLimit(CorruptRecords):
    """Compressed records exceed the limit of the decompressed size."""


class MalformedRecord(CorruptRecords):
    """Decompressed or plain bytes are not the records that the header of their batch announces."""
