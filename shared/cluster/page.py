"""A survey as files: for programs, for spreadsheets, and one page for people."""

from __future__ import annotations

import base64
import csv
import io
import json
from dataclasses import asdict
from pathlib import Path

from shared.cluster.survey import ClusterSurvey
from shared.storage import make_folder, write_bytes, write_text

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Cluster</title>
<style>
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
.good, .bad { font-weight: 600; } .wide { min-width: 640px; }
</style></head><body><main>
<h1>{{ survey.rank_count }} over {{ survey.transport }}</h1>
<p class="{{ 'bad' if survey.problems else 'good' }}">{{ survey.verdict() }}</p>
{% if survey.problems %}<ul>{% for problem in survey.problems %}<li>{{ problem }}</li>{% endfor %}</ul>{% endif %}
<h2>All-reduce</h2>
{% set alone = survey.machines|length == 1 %}
{% if alone %}<p>One rank sends nothing to another: this is its own time, and no bandwidth.
Two ranks or more measure what lies between them.</p>{% endif %}
<div class="scroll" tabindex="0" role="region" aria-label="All-reduce, drawn"><img{% if not alone %}
 class="wide"{% endif %}
alt="Bus bandwidth and time by message size" src="data:image/png;base64,{{ picture }}"></div>
<div class="scroll" tabindex="0" role="region" aria-label="All-reduce by size">
<table><tr><th>bytes</th><th>microseconds</th><th>bus bandwidth, GB/s</th></tr>
{% for one in survey.all_reduce %}<tr><td>{{ "{:,}".format(one.size) }}</td>
<td>{{ "{:,.1f}".format(one.seconds * 1e6) }}</td>
<td>{{ "-" if alone else "%.3f"|format(one.bus_gbytes_per_second) }}</td></tr>{% endfor %}</table></div>
<h2>Ranks</h2>
{% if survey.machines|length > 64 %}<details><summary>all {{ survey.rank_count }}</summary>{% endif %}
<div class="scroll" tabindex="0" role="region" aria-label="Ranks">
<table><tr><th>rank</th><th>node</th><th>host</th><th>device</th><th>InfiniBand</th></tr>
{% for machine in survey.machines %}<tr><td>{{ machine.rank }}</td><td>{{ machine.node }}</td>
<td>{{ machine.host }}</td>
<td>{{ machine.device.name }}</td>
<td>{{ machine.infiniband|map(attribute="rate")|join(", ") or "none" }}</td></tr>{% endfor %}
</table></div>
{% if survey.machines|length > 64 %}</details>{% endif %}
{% if slowest %}<h2>Slowest pairs</h2>
<div class="scroll" tabindex="0" role="region" aria-label="Slowest pairs">
<table><tr><th>ranks</th><th>milliseconds for 1 MiB each way</th></tr>
{% for pair in slowest %}<tr><td>{{ pair.first }} and {{ pair.second }}</td>
<td>{{ pair.error or "%.2f"|format(pair.seconds * 1e3) }}</td></tr>{% endfor %}</table></div>{% endif %}
</main></body></html>
"""


def write_survey(folder: Path, survey: ClusterSurvey) -> None:
    """Write cluster.json, all_reduce.csv, pairs.csv, all_reduce.png and index.html."""
    from jinja2 import Environment

    make_folder(folder)
    document = {"verdict": survey.verdict(), **survey.numbers(), **asdict(survey), "infiniband": survey.infiniband}
    write_text(folder / "cluster.json", json.dumps(document, indent=1) + "\n")
    _write_table(folder / "all_reduce.csv", [asdict(one) for one in survey.all_reduce])
    _write_table(folder / "pairs.csv", [asdict(pair) for pair in survey.pairs])
    drawn = _draw(survey)
    write_bytes(folder / "all_reduce.png", drawn)
    picture = base64.b64encode(drawn).decode()
    slowest = sorted(survey.pairs, key=lambda pair: (not pair.error, -pair.seconds))[:20]
    template = Environment(autoescape=True, trim_blocks=True).from_string(_PAGE)
    write_text(folder / "index.html", template.render(survey=survey, picture=picture, slowest=slowest))


def _write_table(path: Path, rows: list[dict[str, object]]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]) if rows else ["nothing"])
    table.writeheader()
    table.writerows(rows)
    write_text(path, text.getvalue())


def _draw(survey: ClusterSurvey) -> bytes:
    """Draw bandwidth and time by size, both on logarithmic axes, where a 0 has no place."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    every = {
        "bus bandwidth, GB/s": [(one.size, one.bus_gbytes_per_second) for one in survey.all_reduce],
        "microseconds": [(one.size, one.seconds * 1e6) for one in survey.all_reduce],
    }
    positive = {label: [(size, value) for size, value in points if value > 0] for label, points in every.items()}
    panels = {label: points for label, points in positive.items() if points}
    for place, (label, points) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), place)
        axes.plot(*zip(*points, strict=True), marker="o", color="#1a5fd0")
        axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel=label)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120)
    return picture.getvalue()
