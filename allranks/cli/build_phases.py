"""What a person sees while environments are built: on standard error, a line for each phase."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Self

from rich.console import Console

from allranks.cli import text
from allranks.local.containers.images import ContainerImage
from allranks.local.environments.step_environment import StepEnvironment, build_step_environment


def build_environments(
    environments: Iterable[StepEnvironment], without: Sequence[str] = (), target: str = "TARGET"
) -> None:
    """Build environments of steps one after another; the first that fails ends it, and what was built before stays.

    Raises:
        CannotRunHereError: one could not be built.
    """
    for environment in environments:
        with BuildPhases(environment.folder.name) as phases:
            build_step_environment(environment, phases.tell, without, target)


def build_images(images: Iterable[ContainerImage]) -> None:
    """Build or pull images, one after another; raises CannotRunHereError if one cannot be had."""
    for image in images:
        with BuildPhases(image.reference) as phases:
            image.build(phases.tell)


class BuildPhases:
    """Shows on standard error how a build gets on: a line for each phase that is done, a spinner on a terminal."""

    def __init__(self, name: str) -> None:
        self._name, self._phase, self._since = name, "", 0.0
        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("")

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self._finish()
        self._status.stop()

    def tell(self, phase: str) -> None:
        """A phase begins, and so the one before has ended."""
        self._finish()
        self._phase, self._since = phase, time.monotonic()
        self._status.update(f"{self._name}: {phase}")

    def _finish(self) -> None:
        if self._phase:
            took = text.duration_words(time.monotonic() - self._since)
            self._console.print(f"{self._name}: {self._phase} ({took})", markup=False, soft_wrap=True)
