"""Two or more runs beside each other: what differs in what they were given, their code and world, and their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from allranks.local.curves import draw_beside
from allranks.local.folders import RunFolder
from allranks.local.page.changes import changed_files
from allranks.local.page.render import render_page
from allranks.local.resources.words import resource_row_words
from allranks.local.result import RUNNING

_OF_THE_RUN = ("/.allranks/", "AZUREML_", "MLFLOW_", "AZ_BATCH", "PIP_PYTHON", "TMPDIR", "MASTER_PORT", "AZURE_ML_")
"""Parts of the names and values of variables that every run has of its own."""

_SIZES = ("memory_peak", "read", "written")  # of what a step has used, told in GB

_ABOUT = ("run_id", "name", "target", "status", "started", "ended")


def compare_runs(runs: Sequence[RunFolder], documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What differs between runs, the first of which the others are compared with.

    Args:
        runs: their folders.
        documents: what ``run_document`` says of each.

    Returns:
        JSON. ``runs`` has a line on each; ``inputs``, ``data``, ``environment``, ``metrics`` and ``resources`` have
        rows of ``step``, ``name`` and one of the ``values`` for each run, None where a run has none; ``metrics`` and
        ``resources`` have all rows, the others those that differ, and ``same`` counts those that do not. ``code`` has
        the files that differ, by step and run. ``curves`` has those that at least one run has, by step, metric and run.
    """
    found: dict[str, Any] = {
        "runs": [{key: document.get(key) for key in _ABOUT} for document in documents],
        "code": list(_code(runs, documents)),
    }
    same = {}
    tables = {"inputs": _inputs, "data": _data, "environment": _environment}
    for title, values_of in tables.items():
        rows = _rows(documents, values_of)
        found[title] = [row for row in rows if not _is_same(row["values"])]
        same[title] = len(rows) - len(found[title])
    found["metrics"] = _rows(documents, lambda step: step.get("metrics") or {})
    found["resources"] = _rows(documents, _resources)
    found["curves"] = _curves(documents)
    return {**found, "same": same}


_Values = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def _rows(documents: Sequence[Mapping[str, Any]], values_of: _Values) -> list[dict[str, Any]]:
    """A row for each name that a step of one of the runs has."""
    found = [{name: values_of(step) for name, step in document["steps"].items()} for document in documents]
    steps = dict.fromkeys(name for values in found for name in values)
    return [
        {"step": step, "name": name, "values": [values.get(step, {}).get(name) for values in found]}
        for step in steps
        for name in dict.fromkeys(name for values in found for name in values.get(step, {}))
    ]


def _is_same(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)


def _inputs(step: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that are no data from outside of the run; and how many ranks it had, which is given likewise."""
    details = step.get("details", {})
    ranks = {"nodes x processes": f"{step['nodes']} x {step['processes']}"} if step.get("nodes") else {}
    inputs = details.get("inputs", {}).items()
    return {name: value for name, value in inputs if name not in details.get("data", {})} | ranks


def _data(step: Mapping[str, Any]) -> dict[str, Any]:
    """The data that came from outside of the run: where it lies, and what it was when the step began."""
    details = step.get("details", {})
    inputs = details.get("inputs", {})
    return {name: {"path": inputs.get(name), **size} for name, size in details.get("data", {}).items()}


def _environment(step: Mapping[str, Any]) -> dict[str, Any]:
    """Its environment, interpreter and variables, but for those that every run has of its own."""
    details = step.get("details", {})
    variables = details.get("variables", {}).items()
    own = {name: value for name, value in variables if not any(part in f"{name}={value}" for part in _OF_THE_RUN)}
    inputs = details.get("inputs", {})
    about = {key: details[key] for key in ("environment", "python") if details.get(key)}
    return {**about, **{name: value for name, value in own.items() if name not in inputs}}


def _resources(step: Mapping[str, Any]) -> dict[str, Any]:
    """What it has used of the machine in all; nothing of a step that was not measured."""
    used = step.get("resources", {})
    sizes = {f"{name}_gb": used.get(f"{name}_bytes") for name in _SIZES}
    cores = {"cores": used["cores_mean"]} if "cores_mean" in used else {}
    return cores | {name: round(size / 1e9, 6) for name, size in sizes.items() if size is not None}


def _code(runs: Sequence[RunFolder], documents: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The files that differ from those of the first run, by step and run."""
    first = runs[0]
    for other, document in zip(runs[1:], documents[1:], strict=True):
        for name in (name for name, step in document["steps"].items() if step.get("details")):
            before, after = first.step(name).snapshot, other.step(name).snapshot
            known = name in documents[0]["steps"] and before.is_dir() and after.is_dir()
            files = changed_files(before, after) if known else ()
            if files:
                yield {"step": name, "run_id": other.id, "files": [dict(file) for file in files]}


def _curves(documents: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Each metric's curves, by step, metric and run."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for document in documents:
        for name, step in document["steps"].items():
            for metric, points in step.get("curves", {}).items():
                found.setdefault(name, {}).setdefault(metric, {})[document["run_id"]] = points
    return found


def comparison_page(compared: Mapping[str, Any], *, served: bool = False) -> str:
    """The page of what ``compare_runs`` has found, as HTML."""
    order = {run["run_id"]: number for number, run in enumerate(compared["runs"])}
    charts = {step: list(_charts(step, curves, order)) for step, curves in compared["curves"].items()}
    resources = [resource_row_words(row) for row in compared["resources"]]
    shown = {
        "compared": compared,
        "resources": resources,
        "charts": {step: drawn for step, drawn in charts.items() if drawn},
    }
    follows = any(run["status"] == RUNNING for run in compared["runs"])
    return render_page("compare.html", compared, shown, served=served, follows=follows)


def _charts(step: str, curves: Mapping[str, Any], order: Mapping[str, int]) -> Iterator[tuple[str, Any, list[Any]]]:
    """A chart of each metric that was logged twice, with a line for each run, which has its colour in all of them."""
    for metric, by_run in curves.items():
        if max(map(len, by_run.values())) < 2:
            continue  # one value stands in the table
        drawn = draw_beside(metric, by_run)
        lines = tuple(replace(line, colour=order[line.name] % 8) for line in drawn.lines)
        chart = replace(drawn, lines=lines, title=f"{metric} of {step} over steps")
        yield metric, chart, [[line.name, ["curves", step, metric, line.name], line.colour] for line in lines]
