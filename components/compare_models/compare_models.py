"""Compare up to eight evaluations of models and name the best.

Written as a function with mldesigner's decorator; component.yaml is what `mldesigner compile` makes of it, and a test
keeps both equal. Such a component cannot bring `shared/` along, so this file stands alone.
"""

import csv
import errno
import html
import io
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mldesigner import Input, Output, command_component

MOST = 8
MOST_NUMBER = 1e300
PAUSES = (0.1, 0.4, 1.6, 6.4)
"""Seconds before each further try at a mounted blob store."""
_Value = TypeVar("_Value")
_TRANSIENT = {errno.EIO, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ETIMEDOUT, errno.ESTALE, errno.ECONNRESET}


@dataclass(frozen=True)
class Entry:
    """One evaluation: its name and all of its numbers."""

    name: str
    metrics: dict[str, float]


# The decorator reads annotations as values: this file cannot have `from __future__ import annotations`.
_EVALUATIONS = [
    Input(type="uri_folder", optional=True, description=f'Report of "Evaluate" for model {number} of the comparison.')
    for number in range(1, MOST + 1)
]
_NAMES = Input(
    type="string",
    default="-",
    description='Names of the models in the order of their ports, with commas between them; "-" numbers them.',
)
_METRIC = Input(type="string", default="accuracy", description="The number in metrics.json that decides.")
_GOAL = Input(
    type="string",
    enum=["maximize", "minimize"],
    default="maximize",
    description="Whether more or less of it is better.",
)
_REPORT = Output(
    type="uri_folder", description="index.html, comparison.json with the best model, comparison.csv, comparison.png."
)


@command_component(  # type: ignore[untyped-decorator]
    name="compare_models",
    version="0.1.0",
    display_name="Compare models",
    description=(
        "Compares up to eight evaluations and names the best model by one metric. The page shows every model in a "
        "table and a picture. All evaluations should be of the same data."
    ),
    tags={"allranks": "evaluation", "task": "comparison"},
    environment="azureml:allranks-compare:0.1.0",
    is_deterministic=True,
)
def compare_models(  # type: ignore[no-untyped-def] # noqa: ANN201 the decorator refuses "-> None"
    report: _REPORT,  # type: ignore[valid-type]
    evaluation_1: _EVALUATIONS[0] = None,  # type: ignore[valid-type]
    evaluation_2: _EVALUATIONS[1] = None,  # type: ignore[valid-type]
    evaluation_3: _EVALUATIONS[2] = None,  # type: ignore[valid-type]
    evaluation_4: _EVALUATIONS[3] = None,  # type: ignore[valid-type]
    evaluation_5: _EVALUATIONS[4] = None,  # type: ignore[valid-type]
    evaluation_6: _EVALUATIONS[5] = None,  # type: ignore[valid-type]
    evaluation_7: _EVALUATIONS[6] = None,  # type: ignore[valid-type]
    evaluation_8: _EVALUATIONS[7] = None,  # type: ignore[valid-type]
    names: _NAMES = "-",  # type: ignore[valid-type]
    metric: _METRIC = "accuracy",  # type: ignore[valid-type]
    goal: _GOAL = "maximize",  # type: ignore[valid-type]
):
    """Read the reports, find the best, write the comparison."""
    folders = [
        *(evaluation_1, evaluation_2, evaluation_3, evaluation_4),
        *(evaluation_5, evaluation_6, evaluation_7, evaluation_8),
    ]
    try:
        entries = read([Path(folder) if folder else None for folder in folders], names)
        ranked = rank(entries, metric, goal)
    except ValueError as error:
        sys.exit(f"error: {error}")
    write(Path(report), ranked, metric, goal)
    track(ranked[0], metric)
    print(f"best: {ranked[0].name} with {metric} {words(ranked[0].metrics[metric])}, of {count_words(len(ranked))}")


def read(folders: list[Path | None], names: str) -> list[Entry]:
    """The evaluations that are there, with their names.

    Raises:
        ValueError: there is none, a report has no metrics.json, or the number of names is another one.
    """
    given = [(number, folder) for number, folder in enumerate(folders, start=1) if folder is not None]
    if not given:
        raise ValueError(f"nothing to compare: connect at least one of evaluation_1 to evaluation_{MOST}.")
    labels = [f"evaluation_{number}" for number, _ in given]
    if names.strip() not in {"", "-"}:
        labels = [name.strip() for name in names.split(",")]
    if len(labels) != len(given) or len(set(labels)) != len(labels):
        raise ValueError(f"names {names!r} has {len(set(labels))} different names for {len(given)} evaluations.")
    return [Entry(label, _numbers(folder)) for label, (_, folder) in zip(labels, given, strict=True)]


def _numbers(folder: Path) -> dict[str, float]:
    file = folder / "metrics.json"
    if file.exists() and not file.is_file():  # a pipe would be waited for
        raise ValueError(f"{file} is not a file; connect a report of Evaluate.")
    try:
        document = json.loads(again(file.read_text))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read ({error}); connect a report of Evaluate.") from error
    if not isinstance(document, dict):
        raise ValueError(f"{file} holds no metrics by name; connect a report of Evaluate.")  # noqa: TRY004 what a file holds
    numbers = {name: value for name, value in document.items() if isinstance(value, int | float)}
    # JSON's numbers have no end; a picture's axis has to hold twice the largest.
    return {_shown(name): float(value) for name, value in numbers.items() if abs(value) <= MOST_NUMBER}


def _shown(name: str) -> str:
    """A name without halves of characters, which JSON can escape, and which no file can hold."""
    return name.encode(errors="replace").decode()


def rank(entries: list[Entry], metric: str, goal: str) -> list[Entry]:
    """The evaluations, best first; of equal ones the first connected comes first.

    Raises:
        ValueError: an evaluation lacks the metric, or it is not a finite number.
    """
    for entry in entries:
        if metric not in entry.metrics:
            known = ", ".join(sorted(entry.metrics)) or "none"
            raise ValueError(f"{entry.name} has no finite {metric!r}; its metrics are: {known}.")
    return sorted(entries, key=lambda entry: entry.metrics[metric], reverse=goal == "maximize")


def write(report: Path, ranked: list[Entry], metric: str, goal: str) -> None:
    """Write the comparison for programs, for spreadsheets and for people."""
    again(lambda: report.mkdir(parents=True, exist_ok=True))
    best = {"name": ranked[0].name, metric: ranked[0].metrics[metric]}
    document = {
        "metric": metric,
        "goal": goal,
        "best": best,
        "models": [{"name": entry.name, "metrics": entry.metrics} for entry in ranked],
    }
    again(lambda: (report / "comparison.json").write_text(json.dumps(document, indent=1) + "\n"))
    columns = [metric, *sorted({name for entry in ranked for name in entry.metrics} - {metric})]
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(["model", *columns])
    table.writerows([entry.name, *(entry.metrics.get(name, "") for name in columns)] for entry in ranked)
    again(lambda: (report / "comparison.csv").write_text(text.getvalue(), newline=""))
    picture = draw(ranked, metric)
    again(lambda: (report / "comparison.png").write_bytes(picture))
    again(lambda: (report / "index.html").write_text(page(ranked, columns, metric, picture)))


def again(action: Callable[[], _Value]) -> _Value:
    """Do what may be done twice, again where a mounted blob store was away for a moment; see `shared/storage.py`."""
    for pause in PAUSES:
        try:
            return action()
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise
        time.sleep(pause)
    return action()


def draw(ranked: list[Entry], metric: str) -> bytes:
    """A picture with a bar for each model, the best on top."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    values = [entry.metrics[metric] for entry in reversed(ranked)]
    figure, axes = plt.subplots(figsize=(7, 0.5 * len(ranked) + 1.2), layout="constrained")
    bars = axes.barh(range(len(ranked)), values, color="#8fb3f5")
    bars[-1].set_color("#3b82f6")
    # Names are the user's: a "$" in one is no formula.
    axes.set_yticks(range(len(ranked)), [short(entry.name) for entry in reversed(ranked)], parse_math=False)
    axes.bar_label(bars, [words(value) for value in values], padding=3)
    axes.set_xlim(bar_axis(values))
    axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(6))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    axes.set_xlabel(metric, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=120)
    plt.close(figure)
    return drawn.getvalue()


def bar_axis(values: list[float]) -> tuple[float, float]:
    """The ends of the bars' axis: 0 is on it, so that a bar is as long as its value, with room for the numbers."""
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.12 * (high - low) or 1.0
    return low - room if low < 0 else 0.0, high + room if high > 0 or low == 0 else 0.0


def words(value: float) -> str:
    """A number with four decimals, or with four digits where those would say nothing; a count without either."""
    if float(value).is_integer() and 2 <= abs(value) < 1e15:
        return f"{value:.0f}"
    return f"{value:.4f}" if value == 0 or 0.001 <= abs(value) < 1e5 else f"{value:.4g}"


def count_words(models: int) -> str:
    """``1 model``, ``3 models``."""
    return f"{models} model{'' if models == 1 else 's'}"


def short(name: str) -> str:
    """A name that leaves room for the bars."""
    return name if len(name) <= 28 else name[:27] + "…"


STYLE = """\
/* Made by `make renew`. */
:root { color-scheme: light dark; --paper: #fff; --panel: #f5f6f8; --ink: #1c2330; --soft: #596273; --line: #d8dce3;
  --accent: #1a5fd0; --good: #12692f; --bad: #b42a19; --warn: #8f5400; }
@media (prefers-color-scheme: dark) { :root { --paper: #12161d; --panel: #1b212b; --ink: #e6e9ef; --soft: #a3adbc;
  --line: #323a47; --accent: #7bb8ff; --good: #4ac26b; --bad: #ff8a7b; --warn: #e0a030; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: anywhere;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; font-variant-numeric: tabular-nums; }
main { margin: 0 auto; max-width: 1080px; padding: 32px 24px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 12px; } h3 { font-size: 16px; margin: 0; }
p { margin: 6px 0; } a { color: var(--accent); } .soft { color: var(--soft); } .good { color: var(--good); }
.bad { color: var(--bad); } img { max-width: 100%; height: auto; border-radius: 8px; background: #fff; }
table { border-collapse: collapse; width: 100%; } th { color: var(--soft); font-weight: normal; }
td, th { text-align: left; vertical-align: top; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; } .scroll td, .scroll th { overflow-wrap: normal; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
@media (max-width: 600px) { main { padding: 20px 12px 40px; } td, th { padding-right: 8px; } }
@media print { main { max-width: none; padding: 0; } img, figure, article { break-inside: avoid; } }
/* End of what is made. */
"""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Comparison of models</title>
<style>
{style}th, td {{ text-align: right; }} th:first-child, td:first-child {{ text-align: left; }}
tbody tr:first-child {{ font-weight: 600; }}
</style></head><body><main>
<h1>{best} is best</h1>
<p>{count} by {metric}, all numbers from their evaluations.</p>
<img alt="{metric} of each model" src="data:image/png;base64,{picture}">
<div class="scroll" tabindex="0" role="region" aria-label="All numbers">
<table><thead><tr><th>model</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>
</main></body></html>
"""


def page(ranked: list[Entry], columns: list[str], metric: str, picture: bytes) -> str:
    """One page that needs nothing else; names come from users, so all of them are escaped."""
    import base64

    def row(entry: Entry) -> str:
        cells = (words(entry.metrics[name]) if name in entry.metrics else "&ndash;" for name in columns)
        return f"<tr><td>{html.escape(entry.name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"

    return PAGE.format(
        style=STYLE,
        best=html.escape(ranked[0].name),
        count=count_words(len(ranked)),
        metric=html.escape(metric),
        picture=base64.b64encode(picture).decode(),
        head="".join(f"<th>{html.escape(name)}</th>" for name in columns),
        rows="".join(map(row, ranked)),
    )


def track(best: Entry, metric: str) -> None:
    """Report the best value where Azure ML and the local engine look for metrics."""
    file = Path("outputs/metrics.jsonl")
    file.parent.mkdir(exist_ok=True)
    line = {"time": time.time(), "step": 0, "total": None, "metrics": {metric: best.metrics[metric]}}
    file.write_text(json.dumps(line) + "\n", encoding="utf-8")
