"""Reader of single flatbuffer fields: enough of the format to check an Arrow message before its body is read."""

from __future__ import annotations

import struct


def root(buffer: bytes) -> int:
    """Return the position of the root table."""
    (at,) = struct.unpack_from("<I", buffer)
    return int(at)


def field(buffer: bytes, table: int, number: int) -> int | None:
    """Return the position of a table's field; None: it is absent."""
    fields = table - struct.unpack_from("<i", buffer, table)[0]
    (size,) = struct.unpack_from("<H", buffer, fields)
    slot = 2 * (2 + number)  # behind the sizes of this list and of the table
    (offset,) = struct.unpack_from("<H", buffer, fields + slot) if slot < size else (0,)
    return table + offset if offset else None
