"""Documents: where they come from, which split each belongs to, and what makes one unusable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.data.write.request import BadFiles


@dataclass(frozen=True, slots=True)
class Document:
    """A text.

    Attributes:
        text: at least one character.
        split: train, validation or test.
        label: its class; empty for a language model.
    """

    text: str
    split: str
    label: str = ""


class DocumentSource(Protocol):
    """A source of documents; safe to read from several threads."""

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of each unit, as they lie on the disk; a function of the data alone, and the same on every node."""

    def read(self, unit: int, bad: BadFiles) -> Iterator[Document]:
        """Documents of a unit in order, without those that are reported to ``bad``.

        Raises:
            Refusal: naming what cannot be used.
        """


def decode_document(data: bytes, place: str, most: int, bad: BadFiles) -> str | None:
    """Text of a document in UTF-8; None if it is reported as bad: too large, or not UTF-8."""
    if len(data) > most:
        bad.report(place, f"has {len(data):,} bytes; max_megabytes {most / 2**20:g} allows {most:,}")
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad.report(place, f"is not text in UTF-8: byte {error.start} is 0x{data[error.start]:02x}, {error.reason}")
        return None
