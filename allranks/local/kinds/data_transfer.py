"""A step that copies its inputs into its output: a process that runs ``copying.py``."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

from allranks.local import copying
from allranks.local.bindings import PipelineScope
from allranks.local.gang_execution import GangExecution
from allranks.local.kinds import StepKind
from allranks.local.kinds.command import plan_command
from allranks.local.plan import PlannedStep
from allranks.spec import Component, Step
from allranks.spec.component_kinds import CopyComponent


def _plan_data_transfer(step: Step, component: Component, scope: PipelineScope) -> PlannedStep:
    """The copy as a command; it finds its places in the variables that every step has."""
    assert isinstance(component, CopyComponent)  # noqa: S101 its reader has read one
    (output,) = component.outputs
    words = [sys.executable, "-I", str(Path(copying.__file__)), component.copy_mode, output, *component.inputs]
    return plan_command(step, replace(component, command=shlex.join(words)), scope)


STEP_KIND = StepKind(_plan_data_transfer, GangExecution)
