"""The page of a run: its graph, timeline, measures and the ends of its logs; one file that needs nothing else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.files import write_text
from allranks.local.curves import draw_charts
from allranks.local.folders import RunFolder, read_json_file
from allranks.local.logged import read_step_curves
from allranks.local.metrics_file import read_metrics_document
from allranks.local.past import past_child
from allranks.local.result import SUCCEEDED, last_lines
from allranks.local.tracking.reading import TrackingReader, child_depths

if TYPE_CHECKING:
    from jinja2 import Template

_FIRST_PAGE, _NEXT_PAGE = 1.0, 2.0  # seconds from the start of a run, and between two pages of it
_MOST_COLUMNS = 8  # of metrics of child runs; --json has all
_LOG_LINES = 40  # of each rank; the whole log is linked


@dataclass(frozen=True, slots=True)
class _Box:
    """A step in the graph: its column is the longest way to it from a step that needs nothing."""

    name: str
    status: str
    label: str
    x: int
    y: int

    @property
    def shown(self) -> str:
        """As much of the name as the box has room for."""
        return _shortened(self.name, _LETTERS)

    @property
    def shown_label(self) -> str:
        """As much of the label as there is room for beside the status."""
        return _shortened(self.label, _SMALL_LETTERS - len(self.status) - len(" · "))


_LETTERS, _SMALL_LETTERS = 21, 26  # that fit into a box, wide ones and all
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 190, 54, 60, 22  # of the graph's boxes and between them, in pixels


class RunningPage:
    """The page of a run that goes on: written when it is a second old, and again every few seconds."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._due = time.monotonic() + _FIRST_PAGE

    def look(self, state: Callable[[], dict[str, Any]]) -> None:
        """Write what run.json would say now, rarely enough to take no more than a fiftieth of the time."""
        began = time.monotonic()
        if began < self._due:
            return
        write_run_page(self._run, state())
        ended = time.monotonic()
        self._due = ended + max(_NEXT_PAGE, 50 * (ended - began))


def write_run_page(run: RunFolder, state: dict[str, Any] | None = None) -> None:
    """Write report.html, whole or not at all, from what run.json says if no other state is given."""
    state = state or read_json_file(run.state)
    boxes = _graph(state["steps"])
    with TrackingReader(run.home) as reader:
        steps = [_step(run, name, step, reader) for name, step in state["steps"].items()]
    page = _template().render(
        run=state,
        values=state.get("values") or {},
        scale=[f"--scale {step}={nodes}x{each}" for step, (nodes, each) in (state.get("scale") or {}).items()],
        written=time.strftime("%H:%M:%S"),
        steps=steps,
        boxes=list(boxes.values()),
        arrows=_arrows(boxes, state["steps"]),
        graph_width=max((box.x for box in boxes.values()), default=0) + _WIDTH + 4,
        graph_height=max((box.y for box in boxes.values()), default=0) + _HEIGHT + 4,
        box_width=_WIDTH,
        box_height=_HEIGHT,
        length=max([(step["started"] or 0.0) + step["seconds"] for step in state["steps"].values()] + [0.001]),
    )
    write_text(run.report, page)


@cache
def _template() -> Template:
    """The page's template; compiling it takes longer than filling it."""
    from jinja2 import Environment, PackageLoader, select_autoescape

    loader = PackageLoader("allranks.local", "templates")
    environment = Environment(loader=loader, autoescape=select_autoescape(default=True), trim_blocks=True)
    return environment.get_template("report.html")


def _step(run: RunFolder, name: str, step: dict[str, Any], reader: TrackingReader) -> dict[str, Any]:
    """What the page shows of one step, its logs and curves included."""
    folder = run.step(name)
    logs = sorted(folder.logs.glob("*.txt"), key=lambda path: (len(path.name), path.name))
    kept = read_json_file(folder.state) or {}
    return {
        "name": name,
        **step,
        "metrics": read_metrics_document(step["metrics"]),
        "command": kept.get("command", ""),
        "inputs": kept.get("inputs", {}),
        "logs": [{"name": log.name, "path": _relative(log, run), "lines": last_lines(log, _LOG_LINES)} for log in logs],
        "charts": draw_charts(read_step_curves(run, name, reader)),
        "plot": _trial_plot(step),
        **_children(step),
        "links": {port: _relative(folder.outputs / port, run) for port in step["outputs"]},
    }


def _children(step: dict[str, Any]) -> dict[str, Any]:
    """The runs that its script has made itself, and the names of what they have logged, for a table."""
    children = [past_child(child) for child in step.get("child_runs", ())]
    names = dict.fromkeys(name for child in children for name in child.metrics)
    depths = child_depths(children)
    shown = [{**asdict(child), "depth": depth} for child, depth in zip(children, depths, strict=True)]
    has_params = any(child.params for child in children)
    return {"children": shown, "child_metrics": list(names)[:_MOST_COLUMNS], "child_params": has_params}


def _trial_plot(step: dict[str, Any]) -> dict[str, Any] | None:
    """The primary metric by trial as dots in a box of 480 by 120, the best so far as a line; None without values."""
    trials = [trial for trial in step.get("trials", ()) if trial["metric"] is not None]
    if not trials:
        return None
    values = [trial["metric"] for trial in trials]
    low, high, last = min(values), max(values), max(1, len(step["trials"]) - 1)
    better = max if step["goal"] == "maximize" else min

    def place(number: int, value: float) -> tuple[float, float]:
        return 8 + 464 * number / last, 112 - 104 * (value - low) / ((high - low) or 1.0)

    dots = [(*place(trial["number"], trial["metric"]), trial) for trial in trials]
    ranked = [trial for trial in trials if trial["status"] == SUCCEEDED]
    best = accumulate((trial["metric"] for trial in ranked), better)
    line = [place(trial["number"], value) for trial, value in zip(ranked, best, strict=True)]
    return {"dots": dots, "line": " ".join(f"{x:.1f},{y:.1f}" for x, y in line), "low": low, "high": high}


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _relative(path: Path, run: RunFolder) -> str:
    return path.relative_to(run.path).as_posix()


def _graph(steps: dict[str, Any]) -> dict[str, _Box]:
    columns: dict[str, int] = {}
    rows = Counter[int]()
    boxes = {}
    for name, step in steps.items():  # each comes after those that it needs
        column = columns[name] = max((columns[other] + 1 for other in step["after"]), default=0)
        ranks = step["nodes"] * step["processes"]
        label = f"{step['nodes']} x {step['processes']} ranks" if ranks > 1 else step["component"]
        label += f": {step['decision']}".lower() if "decision" in step else ""
        x, y = column * (_WIDTH + _GAP_X) + 2, rows[column] * (_HEIGHT + _GAP_Y) + 2
        boxes[name] = _Box(name, "reused" if step["reused"] else step["status"], label, x, y)
        rows[column] += 1
    return boxes


def _arrows(boxes: dict[str, _Box], steps: dict[str, Any]) -> list[str]:
    """An SVG path from each step to each that reads its outputs."""
    paths = []
    for name, step in steps.items():
        end = boxes[name]
        for start in (boxes[other] for other in step["after"]):
            x1, y1, x2, y2 = start.x + _WIDTH, start.y + _HEIGHT // 2, end.x - 6, end.y + _HEIGHT // 2
            middle = (x1 + x2) // 2
            paths.append(f"M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}")
    return paths
