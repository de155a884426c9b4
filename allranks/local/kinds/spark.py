"""A step that runs a Spark application, on the Spark that is installed beside the step's Python.

Driver and executors are threads of one process (``local[N]``), which listens on loopback only.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from types import MappingProxyType

from allranks.local.bindings import PipelineScope
from allranks.local.gang_execution import GangExecution
from allranks.local.kinds import StepKind
from allranks.local.kinds.command import plan_command
from allranks.local.machine import usable_cores
from allranks.local.plan import PlannedStep
from allranks.spec import Component, Step
from allranks.spec.component_kinds import SparkComponent

_OWN = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_OPTIONS = {"py_files": "--py-files", "jars": "--jars", "files": "--files", "archives": "--archives"}
_NEEDS = {
    "spark-submit": "Install it where the step runs: pip install pyspark. Or name a Python with it: --python {}=PATH.",
    "java": "Install a Java runtime, 17 for example.",
}


def _plan_spark(step: Step, component: Component, scope: PipelineScope) -> PlannedStep:
    """The application as the command that submits it."""
    assert isinstance(component, SparkComponent)  # noqa: S101 its reader has read one
    conf = {key: scope.as_text(value) for key, value in component.conf.items()} | _OWN
    words = ["spark-submit", "--master", f"local[{_cores(conf)}]"]
    for key, value in conf.items():
        words += ["--conf", f"{key}={value}"]
    for attribute, option in _OPTIONS.items():
        if names := getattr(component, attribute):
            words += [option, ",".join(names)]
    command = f'{shlex.join(words)} --conf "spark.local.dir=$TMPDIR" {shlex.quote(component.entry)}'
    planned = plan_command(step, replace(component, command=f"{command} {component.command}".rstrip()), scope)
    needs = {program: remedy.format(planned.name) for program, remedy in _NEEDS.items()}
    return replace(planned, needs=MappingProxyType(needs))


def _cores(conf: dict[str, str]) -> int:
    """As many threads as the executors have cores, and no more than this machine has."""
    counts = [conf.get(f"spark.executor.{key}", "1") for key in ("cores", "instances")]
    asked = [int(text) if text.isdigit() else 1 for text in counts]
    return max(1, min(usable_cores(), asked[0] * asked[1]))


class SparkExecution(GangExecution):
    """The state of a Spark step: Spark makes the folders of its outputs itself, and refuses those that are there."""

    def _make_places(self) -> dict[str, str]:
        places = super()._make_places()
        assert self.workplace is not None  # noqa: S101 the engine acquired it
        for name in places:
            place = self.workplace.outputs / name
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()
        return places


STEP_KIND = StepKind(_plan_spark, SparkExecution)
