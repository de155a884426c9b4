"""TensorBoard's event files, read without TensorFlow: the numbers that a script has logged to them.

A file is a row of TFRecords (tensorflow/core/lib/io/record_writer.h): the length in 8 bytes, its masked CRC-32C, the
data, its masked CRC-32C. The data is a protocol buffer ``Event`` (tensorflow/core/util/event.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_LARGEST_RECORD = 2**16  # bytes of one that is looked into; images and graphs are larger, numbers never are
_MOST_BYTES = 2**23  # of a file that are read at one look, about a second; what is passed over does not count
_MASK = 0xA282EAD8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # the wire types of protocol buffers


class EventPoint(NamedTuple):
    """One number of an event file; it may be NaN or infinite."""

    tag: str
    step: int
    value: float


def read_event_file(file: Path, offset: int = 0) -> tuple[list[EventPoint], int]:
    """Read the numbers after an offset in bytes, as far as the file is whole.

    Returns:
        The numbers in the order of the file, and the offset to go on from: of the first record that is cut, for its
        writer may not be done, or damaged.
    """
    found: list[EventPoint] = []
    try:
        if not file.is_file():  # a pipe would be waited for
            return found, offset
        with file.open("rb") as opened:
            size, read = opened.seek(0, 2), 0
            while read < _MOST_BYTES and (length := _length_at(opened, offset)) is not None:
                if offset + length + 16 > size:
                    break
                if length <= _LARGEST_RECORD:
                    data, check = opened.read(length), opened.read(4)
                    if check != struct.pack("<I", _masked_crc(data)):
                        break
                    found += _points(data)
                    read += length + 16
                offset += length + 16
    except OSError:
        pass
    return found, offset


def _length_at(opened: Any, offset: int) -> int | None:
    """The length of the record that begins there; None when there is none, or a damaged one."""
    opened.seek(offset)
    header = opened.read(12)
    if len(header) < 12 or header[8:] != struct.pack("<I", _masked_crc(header[:8])):
        return None
    return int.from_bytes(header[:8], "little")


def _points(event: bytes) -> list[EventPoint]:
    """The numbers of one Event: fields 2 (step) and 5 (summary), whose field 1 are the values."""
    try:
        fields = list(_fields(event))
        step = next((_signed(value) for number, value in fields if number == 2 and isinstance(value, int)), 0)
        summaries = [value for number, value in fields if number == 5 and isinstance(value, bytes)]
        values = [value for summary in summaries for number, value in _fields(summary) if number == 1]
        points = [_point(value, step) for value in values if isinstance(value, bytes)]
    except (ValueError, struct.error):  # no Event, though its checksum is right
        return []
    return [point for point in points if point is not None]


def _point(value: bytes, step: int) -> EventPoint | None:
    """A Summary.Value: fields 1 (tag) and 2 (simple_value) or 8 (tensor); None for what is no number."""
    fields = dict(_fields(value))
    tag, simple, tensor = fields.get(1), fields.get(2), fields.get(8)
    number = struct.unpack("<f", simple)[0] if isinstance(simple, bytes) and len(simple) == 4 else None
    if number is None and isinstance(tensor, bytes):
        number = _scalar(tensor)
    if number is None or not isinstance(tag, bytes) or not tag:
        return None
    return EventPoint(tag.decode(errors="replace"), step, number)


_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}  # by DataType: float, double, int32, int64, half
_LISTS = {1: 5, 2: 6, 3: 7, 9: 10}  # the field with the values of each, unless they are in tensor_content


def _scalar(tensor: bytes) -> float | None:
    """A TensorProto without dimensions: fields 1 (dtype), 2 (shape) and 4 (tensor_content), or a list of one value."""
    fields = dict(_fields(tensor))
    dtype, shape, content = fields.get(1), fields.get(2, b""), fields.get(4)
    if dtype not in _FORMATS or not isinstance(shape, bytes) or any(number == 2 for number, _ in _fields(shape)):
        return None
    kind = _FORMATS[dtype]
    if content is None:
        content = fields.get(_LISTS.get(dtype, 0))
        if dtype in (3, 9) and content is not None:  # a varint, or packed ones
            return float(_signed(_varint(content, 0)[0] if isinstance(content, bytes) else content))
    if not isinstance(content, bytes) or len(content) != struct.calcsize(kind):
        return None
    return float(struct.unpack(kind, content)[0])


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer by number: integers of varints, bytes of all others.

    Raises:
        ValueError: it is cut, or none.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        if key & 7 == _VARINT:
            number, place = _varint(message, place)
            yield key >> 3, number
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(key & 7)
        if length is None:
            if key & 7 != _BYTES:
                raise ValueError(f"no wire type of protocol buffers: {key & 7}")
            length, place = _varint(message, place)
        if place + length > len(message):
            raise ValueError("the message is cut")
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            raise ValueError("the message is cut")
        byte = message[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & (2**64 - 1), place
    raise ValueError("a number of more than 10 bytes")


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)  # Castagnoli's polynomial, reflected
        table.append(crc)
    return table


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
