"""The one error of this layer.

CorruptRecords      bytes that are no records: cut, mutated, wrongly packed, or unpacking beyond their bound
"""


class CorruptRecords(Exception):
    """Bytes that should hold records do not; the message says which rule they break."""
