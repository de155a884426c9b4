"""What a person sees while environments are built: on standard error, a line for each phase."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.text import Text

from allranks.local.containers.images import ContainerImage
from allranks.local.environments.step_environment import StepEnvironment, build_step_environment
from allranks.redaction import redact
from allranks.wording import duration_words

_FRAMES = 4  # a second: each reads the end of the log
_TAIL = 4096  # bytes of the log in which its last line is looked for


def build_environments(
    environments: Iterable[StepEnvironment], without: Sequence[str] = (), target: str = "TARGET"
) -> None:
    """Build environments of steps one after another; the first that fails ends it, and what was built before stays.

    Raises:
        CannotRunHereError: one could not be built.
    """
    for environment in environments:
        folder = environment.folder
        with BuildPhases(folder.name, folder.with_name(f"{folder.name}.log")) as phases:
            build_step_environment(environment, phases.tell, without, target)


def build_images(images: Iterable[ContainerImage]) -> None:
    """Build or pull images, one after another; raises CannotRunHereError if one cannot be had."""
    for image in images:
        with BuildPhases(image.reference) as phases:
            image.build(phases.tell)


class BuildPhases:
    """Shows on standard error how a build gets on: a line for each phase that is done.

    On a terminal the present phase has a line with its time and, since a download says nothing else, the log's end.
    """

    def __init__(self, name: str, log: Path | None = None) -> None:
        self._name, self._log, self._phase, self._since = name, log, "", 0.0
        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status(self, refresh_per_second=_FRAMES)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self._finish()
        self._status.stop()

    def __rich__(self) -> Text:
        """What stands on the terminal at this moment, on one line."""
        said = f"{self._name}: {self._phase} ({self._took()})  {last_log_line(self._log) if self._log else ''}"
        return Text(said, no_wrap=True, overflow="ellipsis", end="")

    def tell(self, phase: str) -> None:
        """A phase begins, and so the one before has ended."""
        self._finish()
        self._phase, self._since = phase, time.monotonic()

    def _took(self) -> str:
        return duration_words(time.monotonic() - self._since) if self._phase else ""

    def _finish(self) -> None:
        if self._phase:
            self._console.print(f"{self._name}: {self._phase} ({self._took()})", markup=False, soft_wrap=True)


def last_log_line(log: Path) -> str:
    """The last line of a log that says something, without secrets; empty if there is none yet."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    said = (line.strip() for line in reversed(lines))
    return redact(next((line for line in said if line and not line.startswith("$ ")), ""))
