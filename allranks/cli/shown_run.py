"""What is shown of a run while it goes on, and the part that all ways to show it have in common: the logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TextIO

from allranks.cli.line_writer import LineWriter
from allranks.cli.log_choice import LogChoice
from allranks.cli.log_stream import LogStream
from allranks.local.execution import StepExecution
from allranks.local.options import RunObserver
from allranks.local.result import RunResult, StepResult

OUTPUT = "-"
"""What stands for the standard output where a file may be named."""


def stopping_words(seconds: float) -> str:
    """What is said when ranks were asked to stop."""
    return f"stopping: the ranks have {seconds:.0f} s to save what they have; Ctrl-C once more ends them at once"


class ShownRun(RunObserver):
    """Sees a run and shows it."""

    def close(self) -> None:
        """The run goes no further, or never began."""

    def ended(self, result: RunResult) -> None:
        """What became of the run, after ``close``."""


@dataclass(frozen=True, slots=True)
class RunDisplay:
    """What was asked to be shown of a run.

    Attributes:
        logs: whose; None leaves it to where the output goes: none on a terminal, all into a pipe.
        events: a file for JSON lines, or ``-`` for the standard output, which then holds nothing else; None for none.
        observer: what shows progress and end in place of the table and the summary; None for these.
        beside: what shows them too, such as the view below a notebook's cell; None for nothing.
    """

    logs: LogChoice | None = field(default_factory=LogChoice)
    events: str | None = None
    observer: ShownRun | None = None
    beside: ShownRun | None = None

    @property
    def events_to_output(self) -> bool:
        """Whether the standard output is for programs."""
        return self.events == OUTPUT


class LogObserver(ShownRun):
    """Prints the chosen logs, a line for each of theirs."""

    def __init__(self, logs: LogChoice, stream: TextIO) -> None:
        self._writer = LineWriter(stream)
        self._logs = LogStream(logs, self._print, is_ready=lambda: self._writer.is_ready)

    def changed(self, step: StepResult) -> None:
        """Print what a step that has ended has printed until then."""
        self._logs.changed(step)
        self._writer.flush()

    def tick(self, steps: Mapping[str, StepExecution]) -> None:  # noqa: ARG002 the logs tell themselves
        """Print what is new."""
        self._logs.look()

    def close(self) -> None:
        """Print what is left."""
        self._logs.close()
        self._writer.flush()

    def _print(self, step: str, rank: int, lines: list[str]) -> None:
        self._writer.write(marked_lines(step, rank, lines))


def marked_lines(step: str, rank: int, lines: list[str], *, styled: bool = False) -> str:
    """Lines of a log with what tells whose they are: ``train 0 | epoch 1``; in colour where ``styled``."""
    mark = f"{step} {rank} |"
    mark = f"\x1b[{31 + (rank + 5) % 6}m{mark}\x1b[0m " if styled else f"{mark} "
    return "".join([f"{mark}{line}\n" for line in lines])
