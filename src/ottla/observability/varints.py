"""Numbers of protobuf's wire format, without a library: metrics are pushed and scraped in it."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position` and the position after it. Raises ValueError over ten bytes, IndexError at the end."""
    value = shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number is too long")


def write_varint(number: int) -> bytes:
    """Encode `number`, not negative."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
