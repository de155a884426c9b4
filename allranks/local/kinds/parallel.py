"""A parallel step: workers that call its entry script with one mini batch after the other.

Defaults are those of Azure ML's guide "Use parallel jobs in pipelines" and of its YAML reference for parallel jobs:
2 retries, 60 s for a call of ``run``, as many workers on a node as it has cores, or one where there is a GPU.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from allranks.errors import CannotRunHereError
from allranks.local import machine
from allranks.local.bindings import PipelineScope
from allranks.local.kinds import StepKind
from allranks.local.kinds.command import plan_command
from allranks.local.parallel.execution import ParallelExecution
from allranks.local.parallel.plan import DEFAULT_RESULTS, BatchRules, PlannedParallel
from allranks.local.parallel.tables import list_table_files
from allranks.local.plan import PlannedStep
from allranks.spec import Component, Step
from allranks.spec.budget import current_budget
from allranks.spec.parallel import LOGGING_LEVELS, ParallelComponent, ParallelSettings, batch_size


def _plan_parallel(step: Step, component: Component, scope: PipelineScope) -> PlannedStep:
    assert isinstance(component, ParallelComponent)  # noqa: S101 its reader has seen to it
    nodes = scope.count(step.resources.nodes or component.resources.nodes, "instance_count", step)
    # To plan_command it is one process: a command on several nodes needs a distribution.
    one = replace(step.resources, nodes=1)
    common = plan_command(replace(step, resources=one), replace(component, resources=one), scope)
    workers = _workers(component.settings, nodes, step, scope)
    if nodes * workers > (budget := current_budget()).ranks:
        most = f"more than the {budget.ranks:,} that can be planned on this machine. {budget.how_to_raise('ranks')}"
        scope.refuse(step, f"{nodes:,} x {workers:,} workers are {most}")
    rules = _rules(step, component, scope, common)
    divided = common.inputs.get(rules.input_data)
    if divided is None:
        scope.refuse(step, f"the input '{rules.input_data}' is divided into mini batches, and has no value.")
    elif isinstance(divided, Path) and rules.input_type == "mltable":
        try:
            list_table_files(divided)
        except CannotRunHereError as error:
            scope.refuse(step, str(error))
    return PlannedParallel(
        **common.attributes | {"nodes": nodes, "processes": workers, "launched": workers},
        entry_script=component.entry_script,
        rules=rules,
    )


def _workers(settings: ParallelSettings, nodes: int, step: Step, scope: PipelineScope) -> int:
    """Workers on each node."""
    if settings.max_concurrency_per_instance is not None:
        return scope.count(settings.max_concurrency_per_instance, "max_concurrency_per_instance", step)
    return 1 if machine.usable_gpus() else max(1, machine.usable_cores() // nodes)


def _rules(step: Step, component: ParallelComponent, scope: PipelineScope, common: PlannedStep) -> BatchRules:
    settings = component.settings
    if settings.partition_keys:
        scope.refuse(step, "cannot run here: partition_keys divides a table, and a mini batch here is a list of files.")
    given = _Arguments(common.component.command)
    name = settings.input_data or ""

    def number(value: object, key: str, default: int, least: int) -> int:
        text = str(default) if value is None else scope.as_text(value)
        if not text.removeprefix("-").isdigit() or int(text) < least:
            scope.refuse(step, f"{key} is {text!r}; it is a whole number from {least}.")
            return default
        return int(text)

    size = None if settings.mini_batch_size is None else scope.as_text(settings.mini_batch_size)
    if size is not None and not batch_size(size):
        scope.refuse(step, f"mini_batch_size is {size!r}; it is a number of files, or of bytes, such as 10kb.")
    level = "INFO" if settings.logging_level is None else scope.as_text(settings.logging_level)
    if level not in LOGGING_LEVELS:
        scope.refuse(step, f"logging_level is {level!r}; it is one of {', '.join(sorted(LOGGING_LEVELS))}.")
    items = settings.error_threshold if settings.error_threshold is not None else given.number("error_threshold")
    defaults = {field: found for field in _FROM_ARGUMENTS if (found := given.number(field)) is not None}
    return BatchRules(
        input_data=name,
        input_type=component.inputs[name].type if name in component.inputs else "",
        size=batch_size(size) if size else None,
        error_threshold=number(items, "error_threshold", -1, -1),
        mini_batch_error_threshold=number(settings.mini_batch_error_threshold, "mini_batch_error_threshold", -1, -1),
        max_retries=number(settings.max_retries, "max_retries", 2, 0),
        run_timeout=number(settings.timeout, "retry_settings.timeout", 60, 1),
        logging_level=level,
        append_row_to=component.append_row_to,
        results_name=given.text("append_row_file_name") or DEFAULT_RESULTS,
        header=given.text("append_row_dataframe_header").lower() == "true",
        **{_FROM_ARGUMENTS[field]: float(value) for field, value in defaults.items()},
    )


_FROM_ARGUMENTS = {
    "allowed_failed_percent": "allowed_failed_percent",
    "task_overhead_timeout": "overhead_timeout",
    "first_task_creation_timeout": "first_task_timeout",
}
"""Settings that Azure ML's guide lets one write among the program arguments alone."""


class _Arguments:
    """The program arguments as they are written, ``--name value`` and ``--name=value``."""

    def __init__(self, text: str) -> None:
        try:
            self._words = shlex.split(text)
        except ValueError:  # the check has said so
            self._words = []

    def text(self, name: str) -> str:
        """The value of an argument; empty when it is not there, or is a binding."""
        found = ""
        for word, after in pairwise([*self._words, ""]):
            if word == f"--{name}":
                found = after
            elif word.startswith(f"--{name}="):
                found = word.partition("=")[2]
        return "" if "${{" in found else found

    def number(self, name: str) -> int | None:
        """The same as a whole number; None for a text that is none."""
        text = self.text(name)
        return int(text) if text.removeprefix("-").isdigit() else None


STEP_KIND = StepKind(_plan_parallel, ParallelExecution)
