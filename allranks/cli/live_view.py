"""A table drawn in place at the end of a terminal, which may be resized, and what is printed above it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allranks.cli.terminal_echo import ControlEcho

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


class _Frame:
    """Lines that have been rendered."""

    def __init__(self, lines: Sequence[Sequence[Segment]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for number, line in enumerate(self._lines):
            if number:
                yield Segment.line()
            yield from line


class _Printed:
    """Text that is written as it is, escape sequences and all."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        yield Segment(self._text)


class LiveView:
    """The frame at the end of the terminal, from its making until ``close``; no thread is started."""

    def __init__(self) -> None:
        from rich.live import Live

        self._live = Live(auto_refresh=False, transient=True, vertical_overflow="crop")
        self._echo = ControlEcho(self._live.console.file.fileno())
        self._live.start()
        self._drawn: list[int] = []  # how wide each line of the frame is

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines that a frame may have: a full last column or line would make terminals scroll or break."""
        size = self._live.console.size
        return max(1, size.width - 1), max(1, size.height - 1)

    def draw(self, frame: RenderableType) -> None:
        """Put a frame in place of the one before."""
        console = self._live.console
        width, height = self.size
        lines = console.render_lines(frame, console.options.update(width=width), pad=False)[:height]
        self._take_broken_lines_away()
        self._live.update(_Frame(lines), refresh=True)
        self._drawn = [sum(segment.cell_length for segment in line) for line in lines]

    def print_above(self, text: str) -> None:
        """Print whole lines above the frame."""
        self._take_broken_lines_away()
        self._live.console.print(_Printed(text), soft_wrap=True)

    def close(self) -> None:
        """Take the frame away."""
        try:
            self._take_broken_lines_away()
            self._live.stop()
        finally:
            self._echo.restore()

    def restore_after_kill(self) -> None:
        """Leave the terminal as it was found, after the process that drew was killed."""
        self._echo.restore_after_kill()

    def _take_broken_lines_away(self) -> None:
        """A terminal that has become narrower may have broken lines of the frame, which rich does not know of."""
        console = self._live.console
        width, height = console.size
        broken = sum((columns - 1) // width for columns in self._drawn if columns > width)
        if broken:
            up = "\x1b[2K\x1b[1A" * min(broken, height)
            console.file.write(f"\r{up}\x1b[2K")
            console.file.flush()
            self._drawn = [min(columns, width) for columns in self._drawn]
