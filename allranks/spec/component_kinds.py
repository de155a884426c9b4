"""The component of a step that runs no command: what decides which others run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from allranks.spec.model import Component


@dataclass(frozen=True, slots=True)
class DecidingComponent(Component):
    """What stands for the component of a step that decides which others run: its one input is the condition."""

    noun: ClassVar[str] = "condition"

    @property
    def runs_command(self) -> bool:
        """Nothing is run."""
        return False
