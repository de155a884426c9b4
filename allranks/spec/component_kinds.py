"""The components of steps that run no plain command: what decides, copies, or is submitted to Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from allranks.spec.model import NO_TEXTS, Component


@dataclass(frozen=True, slots=True)
class DecidingComponent(Component):
    """What stands for the component of a step that decides which others run: its one input is the condition."""

    noun: ClassVar[str] = "condition"

    @property
    def runs_command(self) -> bool:
        """Nothing is run."""
        return False


@dataclass(frozen=True, slots=True)
class CopyComponent(Component):
    """A component that copies its inputs into its one output.

    Attributes:
        copy_mode: ``merge_with_overwrite`` or ``fail_if_conflict``.
    """

    noun: ClassVar[str] = "data_transfer component"
    step_kind: ClassVar[str] = "data_transfer"
    copy_mode: str = "fail_if_conflict"

    @property
    def runs_command(self) -> bool:
        """The copy is the engine's."""
        return False


@dataclass(frozen=True, slots=True)
class SparkComponent(Component):
    """A component that runs a Spark application; its ``command`` is the text of the application's arguments.

    Attributes:
        entry: the file that is submitted, from the root of the code, as the files in the four tuples.
        conf: Spark's own settings, by its own names.
    """

    noun: ClassVar[str] = "Spark component"
    step_kind: ClassVar[str] = "spark"
    entry: str = ""
    py_files: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
