"""Thrift's binary protocol, as far as HiveServer2 needs it.

A struct is a dataclass whose fields have a number and a type, as in an IDL:

    @dataclass(slots=True)
    class Handle(Struct):
        guid: bytes | None = field(1, BINARY)

Input is hostile: lengths, counts, nesting and the number of values are checked before anything of that size is built.
Unknown fields, and fields of another type, are skipped.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, TypeVar

LARGEST_DEPTH = 16  # of nested structs and containers
LARGEST_MESSAGE_VALUES = 20_000  # fields and elements in one message
LARGEST_NAME = 128  # bytes of a method's name

VERSION = 0x80010000
VERSION_MASK = 0xFFFF0000

_BYTE = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")
_FIELD = struct.Struct(">bh")
_LIST = struct.Struct(">bi")
_MAP = struct.Struct(">bbi")
STOP = b"\x00"


class Malformed(Exception):
    """Bytes are not a message, or a larger one than any of ours."""


class Wire(IntEnum):
    """Types by their numbers in the protocol."""

    BOOL = 2
    BYTE = 3
    DOUBLE = 4
    I16 = 6
    I32 = 8
    I64 = 10
    STRING = 11
    STRUCT = 12
    MAP = 13
    SET = 14
    LIST = 15


class MessageKind(IntEnum):
    """Kind of a message."""

    CALL = 1
    REPLY = 2
    EXCEPTION = 3


_FIXED: dict[int, struct.Struct] = {
    Wire.BYTE: _BYTE,
    Wire.I16: _I16,
    Wire.I32: _I32,
    Wire.I64: _I64,
    Wire.DOUBLE: _DOUBLE,
}
_FIXED_BYTES = {Wire.BOOL: 1, **{kind: packer.size for kind, packer in _FIXED.items()}}


@dataclass(frozen=True, slots=True)
class Type:
    """A type. of: types of elements, or of keys and values. text: UTF-8. encoded: a struct that is bytes already."""

    wire: Wire
    of: tuple[Type, ...] = ()
    struct: type[Struct] | None = None
    text: bool = False
    encoded: bool = False


BOOL, BYTE, I16, I32, I64, DOUBLE = (
    Type(kind) for kind in (Wire.BOOL, Wire.BYTE, Wire.I16, Wire.I32, Wire.I64, Wire.DOUBLE)
)
TEXT = Type(Wire.STRING, text=True)
BINARY = Type(Wire.STRING)
ENCODED = Type(Wire.STRUCT, encoded=True)


def list_of(element: Type) -> Type:
    """Return the type of a list."""
    return Type(Wire.LIST, (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of a map."""
    return Type(Wire.MAP, (key, value))


def struct_of(kind: type[Struct]) -> Type:
    """Return the type of a nested struct."""
    return Type(Wire.STRUCT, struct=kind)


def field(number: int, kind: Type, default: Any = None, *, factory: Callable[[], Any] | None = None) -> Any:
    """Declare a field of a struct; None is not written. factory: makes a mutable default."""
    metadata = {"number": number, "type": kind}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Struct:
    """Base of structs: dataclasses of ``field``s."""

    __slots__ = ()


S = TypeVar("S", bound=Struct)


class Source(Protocol):
    """Source of the bytes of one message."""

    @property
    def left(self) -> int:
        """Most bytes that may follow."""

    def take(self, count: int) -> bytes:
        """Return exactly ``count`` bytes. Raises Malformed where there are fewer."""


class Frame:
    """A message in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Number of bytes that follow."""
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        """Return the next bytes. Raises Malformed."""
        end = self._at + count
        if end > len(self._data):
            raise Malformed("the message ends too early")
        begin, self._at = self._at, end
        return self._data[begin:end]


@dataclass(frozen=True, slots=True)
class _Shape:
    """The fields of a struct: names, numbers and types in order, and the same by number."""

    ordered: tuple[tuple[str, int, Type], ...]
    by_number: dict[int, tuple[str, Type]]


_shapes: dict[type, _Shape] = {}


def _shape(kind: type[Struct]) -> _Shape:
    shape = _shapes.get(kind)
    if shape is None:
        fields = dataclasses.fields(kind)  # type: ignore[arg-type]
        ordered = tuple((field.name, field.metadata["number"], field.metadata["type"]) for field in fields)
        shape = _shapes[kind] = _Shape(ordered, {number: (name, wire) for name, number, wire in ordered})
    return shape


# ---------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Call:
    """The head of a call."""

    method: str
    sequence: int


class Decoder:
    """Reads one message from a source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._values = LARGEST_MESSAGE_VALUES

    def call(self) -> Call:
        """Read the head of a call. Raises Malformed."""
        (head,) = _U32.unpack(self._source.take(4))
        if head & VERSION_MASK != VERSION or head & 0xFF != MessageKind.CALL:
            raise Malformed("not a call in the binary protocol")
        name = self._string(LARGEST_NAME)
        (sequence,) = _I32.unpack(self._source.take(4))
        try:
            return Call(name.decode("ascii"), sequence)
        except UnicodeDecodeError as error:
            raise Malformed("a method's name is not ASCII") from error

    def arguments(self, kind: type[S]) -> S:
        """Read a call's arguments: a struct whose first field is the request. Raises Malformed."""
        request: S | None = None
        while (wire := self._source.take(1)[0]) != 0:
            number = self._field_number()
            if number == 1 and wire == Wire.STRUCT:
                request = self.struct(kind, 1)
            else:
                self._skip(wire, 1)
        return kind() if request is None else request

    def pass_over(self) -> None:
        """Read a struct and discard it. Raises Malformed."""
        self._skip(Wire.STRUCT, 0)

    def struct(self, kind: type[S], depth: int = 0) -> S:
        """Read a struct. Raises Malformed."""
        self._require_depth(depth)
        fields = _shape(kind).by_number
        values: dict[str, Any] = {}
        while (wire := self._source.take(1)[0]) != 0:
            name, wire_type = fields.get(self._field_number(), ("", BOOL))
            if name and wire == wire_type.wire and not wire_type.encoded:
                values[name] = self._value(wire_type, depth + 1)
            else:
                self._skip(wire, depth + 1)
        return kind(**values)

    def _value(self, kind: Type, depth: int) -> Any:
        self._require_depth(depth)
        packer = _FIXED.get(kind.wire)
        if packer is not None:
            return packer.unpack(self._source.take(packer.size))[0]
        if kind.wire is Wire.BOOL:
            return self._source.take(1) != STOP
        if kind.wire is Wire.STRING:
            return self._text() if kind.text else self._string(self._source.left)
        if kind.wire is Wire.STRUCT:
            assert kind.struct is not None
            return self.struct(kind.struct, depth)
        if kind.wire is Wire.MAP:
            return self._map(kind, depth)
        (wire, count) = _LIST.unpack(self._source.take(5))
        if count and wire != kind.of[0].wire:
            raise Malformed("a list has elements of another type")
        return [self._value(kind.of[0], depth + 1) for _ in range(self._count(count))]

    def _map(self, kind: Type, depth: int) -> dict[Any, Any]:
        key_wire, value_wire, count = _MAP.unpack(self._source.take(6))
        key, value = kind.of
        if count and (key_wire != key.wire or value_wire != value.wire):
            raise Malformed("a map has entries of another type")
        return {self._value(key, depth + 1): self._value(value, depth + 1) for _ in range(self._count(count))}

    def _text(self) -> str:
        try:
            return self._string(self._source.left).decode()
        except UnicodeDecodeError as error:
            raise Malformed("a text is not UTF-8") from error

    def _string(self, longest: int) -> bytes:
        (length,) = _I32.unpack(self._source.take(4))
        if not 0 <= length <= longest:
            raise Malformed("a string is longer than its message")
        return self._source.take(length)

    def _field_number(self) -> int:
        self._count(1)
        number: int = _I16.unpack(self._source.take(2))[0]
        return number

    def _count(self, count: int) -> int:
        """Count values that are about to be read. Raises Malformed."""
        if not 0 <= count <= self._values:
            raise Malformed("the message holds too many values")
        self._values -= count
        return count

    def _skip(self, wire: int, depth: int) -> None:
        self._require_depth(depth)
        if wire in _FIXED_BYTES:
            self._source.take(_FIXED_BYTES[Wire(wire)])
        elif wire == Wire.STRING:
            self._string(self._source.left)
        elif wire == Wire.STRUCT:
            while (inner := self._source.take(1)[0]) != 0:
                self._field_number()
                self._skip(inner, depth + 1)
        elif wire == Wire.MAP:
            key, value, count = _MAP.unpack(self._source.take(6))
            for _ in range(self._count(count)):
                self._skip(key, depth + 1)
                self._skip(value, depth + 1)
        elif wire in (Wire.LIST, Wire.SET):
            element, count = _LIST.unpack(self._source.take(5))
            for _ in range(self._count(count)):
                self._skip(element, depth + 1)
        else:
            raise Malformed(f"there is no type {wire}")

    def _require_depth(self, depth: int) -> None:
        if depth > LARGEST_DEPTH:
            raise Malformed("the message is nested too deep")


# ---------------------------------------------------------------------- writing


def encode(value: Struct) -> bytes:
    """Encode a struct with its stop."""
    parts: list[bytes] = []
    _write_struct(parts, value)
    return b"".join(parts)


def reply(call: Call, success: Struct) -> bytes:
    """Encode the message that answers a call."""
    return b"".join((reply_head(call.method, call.sequence), encode(success), STOP))


def reply_head(method: str, sequence: int) -> bytes:
    """Encode the part of a reply before its struct."""
    return head(MessageKind.REPLY, method, sequence) + _FIELD.pack(Wire.STRUCT, 0)


def head(kind: MessageKind, method: str, sequence: int) -> bytes:
    """Encode a message's head."""
    name = method.encode("ascii")
    return b"".join((_U32.pack(VERSION | kind), _I32.pack(len(name)), name, _I32.pack(sequence)))


def field_head(wire: Wire, number: int) -> bytes:
    """Encode the part of a field before its value."""
    return _FIELD.pack(wire, number)


def list_head(wire: Wire, count: int) -> bytes:
    """Encode the part of a list before its elements."""
    return _LIST.pack(wire, count)


def string_head(length: int) -> bytes:
    """Encode the part of a string before its bytes."""
    return _I32.pack(length)


def _write_struct(parts: list[bytes], value: Struct) -> None:
    for name, number, kind in _shape(type(value)).ordered:
        one = getattr(value, name)
        if one is not None:
            parts.append(_FIELD.pack(kind.wire, number))
            _write(parts, kind, one)
    parts.append(STOP)


def _write(parts: list[bytes], kind: Type, value: Any) -> None:
    packer = _FIXED.get(kind.wire)
    if packer is not None:
        parts.append(packer.pack(value))
    elif kind.wire is Wire.BOOL:
        parts.append(b"\x01" if value else STOP)
    elif kind.wire is Wire.STRING:
        data = value.encode(errors="replace") if kind.text else value
        parts += (_I32.pack(len(data)), data)
    elif kind.encoded:
        parts.append(value)
    elif kind.wire is Wire.STRUCT:
        _write_struct(parts, value)
    elif kind.wire is Wire.MAP:
        key_kind, value_kind = kind.of
        parts.append(_MAP.pack(key_kind.wire, value_kind.wire, len(value)))
        for key, one in value.items():
            _write(parts, key_kind, key)
            _write(parts, value_kind, one)
    else:
        parts.append(_LIST.pack(kind.of[0].wire, len(value)))
        for one in value:
            _write(parts, kind.of[0], one)
