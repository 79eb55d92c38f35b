"""Damage: bytes that are nearly right. Whole inputs come from chance alone now and then."""

import random
from typing import Final

from crc32c import crc32c

_BYTES: Final = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
_WORDS: Final = (0, 1, -1, 2**31 - 1, -(2**31), 2**16, 100_000_000, -2)
_HEADER: Final = 61


def damaged(seed: bytes, other: bytes, rng: random.Random) -> bytes:
    """`seed` after one to four random changes, some of which take pieces of `other`."""
    data = bytearray(seed)
    for _ in range(rng.randrange(1, 5)):
        _change(data, other, rng)
    return bytes(data)


def _change(data: bytearray, other: bytes, rng: random.Random) -> None:
    size = len(data)
    at = rng.randrange(size + 1)
    kind = rng.randrange(9)
    if kind == 0 and at < size:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and at < size:
        data[at] = rng.choice(_BYTES)
    elif kind == 2:
        width = rng.choice((2, 4, 8))
        word = rng.choice(_WORDS) & ((1 << 8 * width) - 1)
        data[at : at + width] = word.to_bytes(width, "big")
    elif kind == 3:
        del data[at : at + rng.randrange(1, 9)]
    elif kind == 4:
        data[at:at] = rng.randbytes(rng.randrange(1, 9))
    elif kind == 5:
        data[at:at] = data[at : at + rng.randrange(1, 60)]
    elif kind == 6 and other:
        start = rng.randrange(len(other))
        data[at : at + rng.randrange(60)] = other[start : start + rng.randrange(60)]
    elif kind == 7:
        del data[at:]
    else:
        data[at : at + rng.randrange(1, 6)] = bytes([0xFF] * rng.randrange(1, 6))


def seal(batch: bytes, *, length: bool) -> bytes:
    """A damaged RecordBatch v2 whose CRC (and `length`) are right again, so that damage gets past the first checks."""
    if len(batch) < _HEADER:
        return batch
    if length:
        batch = batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:]
    end = 12 + int.from_bytes(batch[8:12], "big", signed=True)
    return batch[:17] + crc32c(batch[21 : max(end, 21)]).to_bytes(4, "big") + batch[21:]
