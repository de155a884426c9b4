"""Documents: where they come from, which split each belongs to, and what makes one unusable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.data.write.request import BadFiles


@dataclass(frozen=True, slots=True)
class Document:
    """A text of at least one character, its split, and its class, which is empty for a language model."""

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


def size_fault(size: int, most: int) -> str:
    """What is wrong with a text of more than ``most`` bytes; empty if it has no more."""
    return f"has {size:,} bytes; max_megabytes {most / 2**20:g} allows {most:,}" if size > most else ""
