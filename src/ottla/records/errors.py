"""The errors of this layer.

CorruptRecords      bytes that are no records: cut, mutated, wrongly packed
+-- BeyondLimit     they unpack to more than they may
"""


class CorruptRecords(Exception):
    """Bytes that should hold records do not; the message says which rule they break."""


class BeyondLimit(CorruptRecords):
    """Packed records that unpack to more bytes than they may."""
