"""What a user can get wrong: each error has one message, what to do next, and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class AllranksError(Exception):
    """Something that was asked for is wrong; the command line prints it without a traceback and exits with 2.

    Args:
        message: the value, the rule and the choices, in one or two sentences.
        hint: the next step, often a command; empty when the message already says it.
    """

    kind = "error"
    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def _render_traceback_(self) -> list[str]:
        """What IPython and notebooks show: the message and the next step, without the way through this library."""
        return [f"error: {self.message}", *([self.hint] if self.hint else [])]


class UsageError(AllranksError):
    """An argument of a command or of a public function is wrong."""

    kind = "usage"


class UnknownNameError(AllranksError):
    """A target, component, pipeline, step, input or run has no such name."""

    kind = "unknown_name"


class CannotRunHereError(AllranksError):
    """The pipeline is sound, but this machine or the local engine cannot run it."""

    kind = "cannot_run_here"


class StorageError(AllranksError):
    """A folder that has to be read or written cannot be."""

    kind = "storage"


class AzureError(AllranksError):
    """Azure refused: credentials, rights, or something that is not there."""

    kind = "azure"


class AzureUnavailableError(AllranksError):
    """Azure could not be reached, was too busy, or failed; the same command may succeed later."""

    kind = "azure_unavailable"
    exit_code = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in one place of one file.

    Attributes:
        message: the value, the rule, the choices.
        where: dotted path inside the document, such as ``jobs.train.inputs.epochs``; empty for the whole file.
        file: the file, or None when the document did not come from a file.
        line: 1-based line in the file, or None when unknown.
        hint: the next step; may be empty.
        severity: ``error`` stops a run; ``warning`` is shown and the run goes on; ``elsewhere`` stops a run too, but is
            no mistake: Azure ML takes it, and this machine cannot run it.
    """

    message: str
    where: str = ""
    file: Path | None = None
    line: int | None = None
    hint: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        """Format as ``file:line: where: message (hint)``, leaving out what is unknown."""
        place = "" if self.file is None else str(self.file) + (f":{self.line}" if self.line else "") + ": "
        return place + (f"{self.where}: " if self.where else "") + self.message + (f" {self.hint}" if self.hint else "")


class SpecError(AllranksError):
    """A pipeline or component is not valid; carries all of its problems at once.

    Args:
        problems: what stops a run, and makes the message.
        warnings: what ``lint`` tells besides.
    """

    kind = "invalid"

    def __init__(self, problems: Sequence[Problem], warnings: Sequence[Problem] = ()) -> None:
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)
        super().__init__("\n".join(map(str, self.problems)))
