"""Where the value of a step's input comes from: the way to it, from the step outwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from allranks.spec.model import Source

GIVEN, DEFAULT, WRITTEN, OUTPUT, SEARCHED, COMPOSED = "given", "default", "written", "output", "searched", "composed"
"""What a value is in the end: given for this run, a default, written in a file, another step's output, one that a sweep
tries, or a text that is made from several."""


@dataclass(frozen=True, slots=True)
class InputSource:
    """Where a value comes from.

    Attributes:
        kind: what it is in the end, one of the words above.
        words: the whole way to it: ``input rate of inner, which is input rate of the pipeline: given as rate``.
        file: of a value that is written in a file, or a default that is.
        line: there.
    """

    kind: str
    words: str
    file: str | None = None
    line: int | None = None

    def through(self, place: str) -> InputSource:
        """The same, seen from an input that is bound to it; ``place`` names what it is bound to."""
        joined = f"{place}, which is {self.words}" if self.words.startswith("input ") else f"{place}: {self.words}"
        return InputSource(self.kind, joined, self.file, self.line)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"kind": self.kind, "words": self.words, "file": self.file, "line": self.line}


def given_source(name: str) -> InputSource:
    """What was given for this run, on the command line or in Python, under a name or by an option."""
    return InputSource(GIVEN, f"given as {name}")


def source_in_file(kind: str, source: Source, where: str) -> InputSource:
    """What stands in a pipeline's or component's file; ``where`` is the dotted path there."""
    words = {DEFAULT: "default", WRITTEN: "written"}[kind]
    if source.file is None:
        return InputSource(kind, f"{words} in the pipeline")
    line = source.lines.get(source.place(where))
    return InputSource(
        kind, f"{words} in {source.file.name}" + (f", line {line}" if line else ""), str(source.file), line
    )
