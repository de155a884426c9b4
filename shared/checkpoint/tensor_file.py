"""One safetensors file of pieces of tensors, hashed while it is written and checked, piece by piece, while it is read.

The last tensor of each file, `__sha256__`, has the sha256 of every piece in the order of the header, so that a rank can
read one piece and know that it is right. The file's own seal is over its header and that tensor: nothing is hashed
twice, and nothing that was written is read again. Any reader of safetensors reads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shared.storage import RandomReads, read_bytes, write_file
from shared.tensors import LENGTH, bytes_of, encode_header, tensor_of, type_of


@dataclass(frozen=True, slots=True)
class ShardPart:
    """A piece of a named tensor: its values (torch or NumPy), the shape of the whole, and where it belongs in it."""

    name: str
    values: Any
    shape: tuple[int, ...]
    offset: tuple[int, ...]

    @classmethod
    def whole(cls, name: str, values: Any) -> ShardPart:
        """Make the piece that is the whole tensor."""
        return cls(name, values, tuple(values.shape), (0,) * len(values.shape))


class DamageError(Exception):
    """A checkpoint is not what was written; the message says which part of it."""


@dataclass(frozen=True, slots=True)
class FileSeal:
    """Size of a file in bytes, and a sha256 that was taken while it was written."""

    size: int
    sha256: str

    @classmethod
    def of_bytes(cls, content: bytes) -> FileSeal:
        """Seal what is, or will be, a file."""
        return cls(len(content), hashlib.sha256(content).hexdigest())

    def to_json(self) -> dict[str, Any]:
        """As it stands in the manifest."""
        return {"bytes": self.size, "sha256": self.sha256}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> FileSeal:
        """Read what `to_json` gave."""
        return cls(int(said["bytes"]), str(said["sha256"]))


def read_sealed(path: Path, seal: FileSeal) -> bytes:
    """Read a small file.

    Raises:
        DamageError: it is missing, or not what was written.
    """
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        raise DamageError(f"{path.name} is missing") from None
    if len(content) != seal.size:
        raise DamageError(f"{path.name} has {len(content)} bytes instead of {seal.size}")
    if FileSeal.of_bytes(content) != seal:
        raise DamageError(f"the sha256 of {path.name} differs")
    return content


_DIGESTS: Final = "__sha256__"
_PIECES: Final = "pieces"
"""Entry of the metadata: JSON, name to shape of the whole tensor and offset of the piece in it."""
_DIGEST_BYTES: Final = 32
_HASHED_BYTES: Final = 2**24
"""Bytes that are hashed and written before the next ones are: they are in the processor's cache then, if ever."""
_HEADER_LIMIT: Final = 10**8
"""Bytes, as in safetensors itself."""


def write_tensor_file(path: Path, parts: Iterable[ShardPart]) -> FileSeal:
    """Write pieces, contiguous and on the CPU, as one file, and return its seal for the manifest.

    The same pieces make the same bytes, in whatever order they come.

    Raises:
        OSError: it cannot be written.
        ValueError: the elements are of a type that safetensors does not know.
    """
    # Wide elements first, so that each lies at a multiple of its size.
    ordered = sorted(parts, key=lambda part: (-part.values.dtype.itemsize, part.name))
    header = _header(ordered)
    seal: list[FileSeal] = []

    def content() -> Iterator[memoryview | bytes]:
        yield header
        digests, size = [], len(header)
        for part in ordered:
            digest, values = hashlib.sha256(), bytes_of(part.values)
            for start in range(0, len(values), _HASHED_BYTES):
                piece = values[start : start + _HASHED_BYTES]
                digest.update(piece)
                yield piece
            digests.append(digest.digest())
            size += len(values)
        table = b"".join(digests)
        yield table
        seal[:] = [FileSeal(size + len(table), hashlib.sha256(header + table).hexdigest())]

    write_file(path, content)
    return seal[0]


def _header(parts: Sequence[ShardPart]) -> bytes:
    entries = [(part.name, type_of(part.values), tuple(part.values.shape)) for part in parts]
    places = {part.name: [part.shape, part.offset] for part in parts}
    return encode_header([*entries, (_DIGESTS, "U8", (len(parts), _DIGEST_BYTES))], {_PIECES: json.dumps(places)})


@dataclass(frozen=True, slots=True)
class StoredPiece:
    """A piece in a file: of which tensor, of what type and shape, where it belongs in the whole and where it lies."""

    name: str
    type_name: str
    size: tuple[int, ...]
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    first: int
    last: int
    digest: bytes


class TensorFile:
    """A file that `write_tensor_file` has written, open for reading; its header is right, its pieces are still to be.

    Attributes:
        pieces: what it holds, in the order in which it lies there.
    """

    def __init__(self, path: Path, seal: FileSeal) -> None:
        self._path, self._reads = path, RandomReads(path)
        if self._reads.size != seal.size:
            raise DamageError(f"{path.name} has {self._reads.size} bytes instead of {seal.size}")
        (length,) = LENGTH.unpack(self._reads.read(0, LENGTH.size))
        if not 0 < length <= min(_HEADER_LIMIT, seal.size):
            raise DamageError(f"the header of {path.name} is damaged")
        header = self._reads.read(0, LENGTH.size + length)
        try:
            entries = json.loads(header[LENGTH.size :])
            start, end = entries[_DIGESTS]["data_offsets"]
            table = self._reads.read(len(header) + start, end - start)
        except (ValueError, KeyError, TypeError, OverflowError, MemoryError, RecursionError):
            raise DamageError(f"the header of {path.name} is damaged") from None
        if hashlib.sha256(header + table).hexdigest() != seal.sha256:
            raise DamageError(f"the sha256 of {path.name} differs")
        self.pieces = tuple(_stored(entries, bytes(table), len(header)))

    def read(self, piece: StoredPiece) -> Any:
        """Read a piece, of torch if that is imported, else of NumPy.

        Raises:
            DamageError: it is not what was written.
        """
        content = self._reads.read(piece.first, piece.last - piece.first)
        if hashlib.sha256(content).digest() != piece.digest:
            raise DamageError(f"the sha256 of {piece.name} in {self._path.name} differs")
        return tensor_of(content, piece.type_name, piece.size)

    def check_pieces(self) -> None:
        """Read all of it, in pieces that need little memory.

        Raises:
            DamageError: one of them is not what was written.
        """
        for piece in self.pieces:
            digest = hashlib.sha256()
            for start in range(piece.first, piece.last, _HASHED_BYTES):
                digest.update(self._reads.read(start, min(_HASHED_BYTES, piece.last - start)))
            if digest.digest() != piece.digest:
                raise DamageError(f"the sha256 of {piece.name} in {self._path.name} differs")

    def close(self) -> None:
        """Close the file."""
        self._reads.close()


def _stored(entries: dict[str, Any], table: bytes, begin: int) -> Iterator[StoredPiece]:
    places = json.loads(entries["__metadata__"][_PIECES])
    for number, (name, (shape, offset)) in enumerate(places.items()):
        entry = entries[name]
        first, last = entry["data_offsets"]
        digest = table[_DIGEST_BYTES * number : _DIGEST_BYTES * (number + 1)]
        size = tuple(entry["shape"])
        yield StoredPiece(name, entry["dtype"], size, tuple(shape), tuple(offset), begin + first, begin + last, digest)
