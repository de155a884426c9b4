"""The graph of a run's steps: boxes in columns, and an arrow to each step from those whose outputs it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LETTERS, _SMALL_LETTERS = 21, 24  # that fit into a box, wide ones and all
BOX_WIDTH, BOX_HEIGHT = 190, 54  # in pixels
_GAP_X, _GAP_Y = 60, 22
_EDGE = 2  # for the line around a box


@dataclass(frozen=True, slots=True)
class StepBox:
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


@dataclass(frozen=True, slots=True)
class StepGraph:
    """The boxes, an SVG path for each arrow, and the size of the whole in pixels."""

    boxes: tuple[StepBox, ...]
    arrows: tuple[str, ...]

    @property
    def width(self) -> int:
        """Pixels."""
        return max((box.x for box in self.boxes), default=0) + BOX_WIDTH + 2 * _EDGE

    @property
    def height(self) -> int:
        """Pixels."""
        return max((box.y for box in self.boxes), default=0) + BOX_HEIGHT + 2 * _EDGE


def draw_graph(steps: Mapping[str, Any]) -> StepGraph:
    """The graph of a run document's steps, each of which comes after those that it needs."""
    columns: dict[str, int] = {}
    rows = Counter[int]()
    boxes = {}
    for name, step in steps.items():
        column = columns[name] = max((columns[other] + 1 for other in step.get("after", ())), default=0)
        x, y = column * (BOX_WIDTH + _GAP_X) + _EDGE, rows[column] * (BOX_HEIGHT + _GAP_Y) + _EDGE
        boxes[name] = StepBox(name, "reused" if step.get("reused") else step["status"], _label(step), x, y)
        rows[column] += 1
    arrows = [_arrow(boxes[other], boxes[name]) for name, step in steps.items() for other in step.get("after", ())]
    return StepGraph(tuple(boxes.values()), tuple(arrows))


def _label(step: Mapping[str, Any]) -> str:
    ranks = step.get("nodes", 0) * step.get("processes", 0)
    label = f"{step['nodes']} x {step['processes']} ranks" if ranks > 1 else step.get("component", "")
    return label + (f": {step['decision']}".lower() if "decision" in step else "")


def _arrow(start: StepBox, end: StepBox) -> str:
    x1, y1, x2, y2 = start.x + BOX_WIDTH, start.y + BOX_HEIGHT // 2, end.x - 6, end.y + BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
