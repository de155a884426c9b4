"""A terminal's screen as far as the live table uses one, with lines that are broken again when it is resized, or cut.

Terminals differ in that: VTE, kitty and Windows Terminal break lines again, xterm cuts them, and no emulator that tests
could be given does both.
"""

from __future__ import annotations

import codecs
import re

from rich.cells import cell_len

_PARTS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b.|(\r)|(\n)|([^\x1b\r\n]+)", re.DOTALL)


class Screen:
    """The lines that were written, the last ``height`` of which can be reached."""

    def __init__(self, width: int, height: int, *, breaks_again: bool = False) -> None:
        self.width, self.height, self._breaks_again = width, height, breaks_again
        self.lines, self._row, self._column = [""], 0, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        for part in _PARTS.finditer(self._decoder.decode(data)):
            numbers, final, back, down, text = part.groups()
            if back:
                self._column = 0
            elif down:
                self._down()
                self._column = 0  # as the terminal's driver does
            elif text:
                for letter in text:
                    self._write(letter)
            elif final == "A":
                self._row = max(self._row - int(numbers or 1), len(self.lines) - self.height, 0)
            elif final == "K":
                self.lines[self._row] = "" if numbers == "2" else self.lines[self._row][: self._column]
            else:
                assert final in ("m", "h", "l", None), f"a sequence that this screen does not know: {part[0]!r}"

    def resize(self, width: int, height: int) -> None:
        assert not any(self.text[self._row + 1 :]), "the cursor is on the last line between two frames"
        del self.lines[self._row + 1 :]
        self.width, self.height = width, height
        if self._breaks_again:
            self.lines = [line[at : at + width] for line in self.lines for at in range(0, max(1, len(line)), width)]
        else:
            self.lines = [line[:width] for line in self.lines]
        self._row, self._column = len(self.lines) - 1, len(self.lines[-1])

    @property
    def text(self) -> list[str]:
        return [line.rstrip() for line in self.lines]

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self.lines):
            self.lines.append("")

    def _write(self, letter: str) -> None:
        if cell_len(self.lines[self._row][: self._column]) + cell_len(letter) > self.width:
            self._down()
            self._column = 0
        line = self.lines[self._row].ljust(self._column)
        self.lines[self._row] = line[: self._column] + letter + line[self._column + 1 :]
        self._column += 1
