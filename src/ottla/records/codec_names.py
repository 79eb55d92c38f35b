"""Compression codecs of records: their numbers in batches, and their names in configs, without the libraries they need."""

from typing import Final

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names in the order of the numbers."""
