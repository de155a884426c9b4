"""What the template of a run's page needs beside the run's document: places, pictures, links, ends of logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from allranks.local.curves import draw_charts, draw_over_seconds
from allranks.local.folders import RunFolder
from allranks.local.goodput import past_restarts, restart_words
from allranks.local.metrics_file import read_metrics_document
from allranks.local.page.changes import changed_files, run_before, snapshot_sizes
from allranks.local.page.graph import draw_graph
from allranks.local.page.logs import log_before, step_logs
from allranks.local.page.sweeps import sweep_pictures
from allranks.local.past import past_child
from allranks.local.resources.summary import CHARTS
from allranks.local.resources.words import resource_lines
from allranks.local.traces import LogTraces
from allranks.local.tracking.reading import child_depths
from allranks.wording import run_seconds

_MOST_COLUMNS = 8  # of metrics of child runs; --json has all
_LOG_BYTES = 1 << 15  # of the end of each log in the page; the whole log is linked
_MOST_FILES = 300  # of a snapshot that are named
_ALL_LOG_BYTES = 1 << 20  # of the ends of all logs together, so that a page of many ranks stays small
_LEAST_LOG_BYTES = 2048
_MOST_LANES = 16  # of nodes in the timeline; of more, those that say something


def page_model(run: RunFolder, document: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the template, of a run's document as ``run_document`` makes it."""
    steps = document["steps"]
    length = [(step.get("started") or 0.0) + step.get("seconds", 0.0) for step in steps.values()]
    logs = {name: step_logs(run.step(name)) for name in steps}
    count = sum(map(len, logs.values()))
    most = max(_LEAST_LOG_BYTES, min(_LOG_BYTES, _ALL_LOG_BYTES // max(1, count)))
    return {
        "run": document,
        "values": document.get("values") or {},
        "scale": [f"--scale {step}={nodes}x{each}" for step, (nodes, each) in (document.get("scale") or {}).items()],
        "steps": [_step(run, name, step, logs[name], most) for name, step in steps.items()],
        "graph": draw_graph(steps),
        "length": max([run_seconds(document) or 0.0, *length, 0.001]),
        "before": run_before(run),
    }


def _step(run: RunFolder, name: str, step: Mapping[str, Any], logs: Mapping[str, Path], most: int) -> dict[str, Any]:
    """What the page shows of one step."""
    details = step.get("details", {})
    point = LogTraces(run.step(name).logs).point
    return {
        "name": name,
        **step,
        "metrics": read_metrics_document(step.get("metrics")),
        "details": details,
        "restarted": restart_words(past_restarts(step)),
        "logs": [
            {"name": log, "path": _link(path, run), "piece": log_before(path, most=most, point=point)}
            for log, path in logs.items()
        ],
        "failed_log": _failed_log(step, logs),
        "charts": draw_charts(step.get("curves", {})),
        "used": list(resource_lines(step.get("resources", {}))),
        "resource_charts": _resource_charts(name, details.get("resources", {})),
        "sweep": sweep_pictures(step),
        "bars": _bars(step),
        **(_code(run, name) if details else {}),  # else its snapshot may be half copied
        **_children(step),
        "links": {port: _link(run.step(name).outputs / port, run) for port in step.get("outputs", ())},
    }


def _failed_log(step: Mapping[str, Any], logs: Mapping[str, Path]) -> str:
    """The name of the log of the rank that failed first; empty without one."""
    path = (step.get("failure") or {}).get("log")
    return next((name for name, log in logs.items() if path and log == Path(path)), "")


def _resource_charts(step: str, over_time: Mapping[str, Any]) -> list[tuple[str, Any, list[Any]]]:
    """A title, a chart and where its lines lie in the document, for each thing that was measured at least twice."""
    found = []
    for name, (title, unit) in CHARTS.items():
        curves = {whose: points for whose, points in over_time.get(name, {}).items() if len(points) > 1}
        if curves:
            drawn = draw_over_seconds(title, unit, curves)
            below = ["steps", step, "details", "resources", name]
            found.append((title, drawn, [[line.name, [*below, line.name], line.colour] for line in drawn.lines]))
    return found


def _bars(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lanes of a step in the timeline: its attempts, and below them each node's where there are several."""
    if step.get("started") is None:
        return []
    whole = {"start": step["started"], "seconds": step["seconds"], "status": _status(step), "title": ""}
    attempts = step.get("details", {}).get("attempt_times", [])
    bars = [
        {
            "start": attempt["started"],
            "seconds": max(attempt["seconds"], step["started"] + step["seconds"] - attempt["started"])
            if attempt["status"] == "running"  # its end was not written yet, or never: its engine was killed
            else attempt["seconds"],
            "status": _status(step) if attempt["status"] == "running" else attempt["status"],
            "title": ": ".join(filter(None, (f"attempt {number}", attempt.get("cause"), attempt["message"]))),
            "nodes": attempt["nodes"],
        }
        for number, attempt in enumerate(attempts, start=1)
    ]
    lanes = [{"label": "", "bars": bars or [whole]}]
    if bars and len(bars[-1]["nodes"]) > 1:
        shown = _shown_nodes(bars[-1]["nodes"], (step.get("failure") or {}).get("node"))
        for node in shown:
            own = [{**bar, "seconds": min(bar["seconds"], bar["nodes"].get(node, 0.0))} for bar in bars]
            is_open = attempts[-1]["status"] == "running"
            goes_on = [{**bar, "seconds": bars[-1]["seconds"]} for bar in bars[-1:] if is_open]
            lanes.append({"label": f"node {node}", "bars": [*own[: len(own) - len(goes_on)], *goes_on]})
        if rest := len(bars[-1]["nodes"]) - len(shown):
            lanes.append({"label": f"{rest} more", "bars": []})
    return lanes


def _shown_nodes(nodes: Mapping[str, float], failed: int | None) -> list[str]:
    """All nodes; of many the one that failed, and those that ended first."""
    if len(nodes) <= _MOST_LANES:
        return list(nodes)
    return sorted(nodes, key=lambda node: (node != str(failed), nodes[node], int(node)))[:_MOST_LANES]


def _status(step: Mapping[str, Any]) -> str:
    return "reused" if step.get("reused") else str(step["status"])


def _code(run: RunFolder, name: str) -> dict[str, Any]:
    """A step's files with their bytes, and how they differ from those of the run before; None without one."""
    files = list(snapshot_sizes(run.step(name).snapshot).items())
    return {"files": files[:_MOST_FILES], "file_count": len(files), "changes": _changes(run, name)}


def _changes(run: RunFolder, name: str) -> tuple[Mapping[str, Any], ...] | None:
    before = run_before(run)
    snapshots = [] if before is None else [before.step(name).snapshot, run.step(name).snapshot]
    return changed_files(*snapshots) if snapshots and all(one.is_dir() for one in snapshots) else None


def _children(step: Mapping[str, Any]) -> dict[str, Any]:
    """The runs that its script has made itself, and the names of what they have logged, for a table."""
    children = [past_child(child) for child in step.get("child_runs", ())]
    names = dict.fromkeys(name for child in children for name in child.metrics)
    depths = child_depths(children)
    shown = [{**asdict(child), "depth": depth} for child, depth in zip(children, depths, strict=True)]
    has_params = any(child.params for child in children)
    return {"children": shown, "child_metrics": list(names)[:_MOST_COLUMNS], "child_params": has_params}


def _link(path: Path, run: RunFolder) -> str:
    return path.relative_to(run.path).as_posix()
