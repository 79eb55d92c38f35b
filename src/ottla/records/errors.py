"""The errors of this layer.

CorruptRecords      bytes that are no records: cut, mutated, wrongly compressed
+-- BeyondLimit     they decompress to more than they may
+-- MalformedRecord what was decompressed is no record
"""


class CorruptRecords(Exception):
    """Bytes that should hold records do not; the message says which rule they break."""


class BeyondLimit(CorruptRecords):
    """Compressed records that decompress to more bytes than they may."""


class MalformedRecord(CorruptRecords):
    """Bytes that were decompressed, or were plain, and are not the records that their batch says."""
