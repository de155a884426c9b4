"""A survey as files: for programs, for spreadsheets, and one page for people."""

from __future__ import annotations

import base64
import csv
import json
from dataclasses import asdict
from pathlib import Path

from shared.cluster.survey import ClusterSurvey

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Cluster</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 0 auto; padding: 32px 24px; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: 5px 14px 5px 0; }
tr { border-bottom: 1px solid #8884; } div { overflow-x: auto; } .bad { color: #d1372c; font-weight: 600; }
.good { color: #18893f; font-weight: 600; } img { max-width: 100%; background: #fff; border-radius: 8px; }
</style></head><body>
<h1>{{ survey.machines|length }} ranks over {{ survey.transport }}</h1>
<p class="{{ 'bad' if survey.problems else 'good' }}">{{ survey.verdict() }}</p>
{% if survey.problems %}<ul>{% for problem in survey.problems %}<li>{{ problem }}</li>{% endfor %}</ul>{% endif %}
<h2>All-reduce</h2>
<img alt="Bus bandwidth by message size" src="data:image/png;base64,{{ picture }}">
<div><table><tr><th>bytes</th><th>microseconds</th><th>bus bandwidth, GB/s</th></tr>
{% for one in survey.all_reduce %}<tr><td>{{ "{:,}".format(one.size) }}</td>
<td>{{ "%.1f"|format(one.seconds * 1e6) }}</td>
<td>{{ "%.3f"|format(one.bus_gbytes_per_second) }}</td></tr>{% endfor %}</table></div>
<h2>Ranks</h2>
<div><table><tr><th>rank</th><th>node</th><th>host</th><th>device</th><th>InfiniBand</th></tr>
{% for machine in survey.machines %}<tr><td>{{ machine.rank }}</td><td>{{ machine.node }}</td>
<td>{{ machine.host }}</td>
<td>{{ machine.device.name }}</td>
<td>{{ machine.infiniband|map(attribute="rate")|join(", ") or "none" }}</td></tr>{% endfor %}
</table></div>
<h2>Slowest pairs</h2>
<div><table><tr><th>ranks</th><th>milliseconds for 1 MiB each way</th></tr>
{% for pair in slowest %}<tr><td>{{ pair.first }} and {{ pair.second }}</td>
<td>{{ pair.error or "%.2f"|format(pair.seconds * 1e3) }}</td></tr>{% endfor %}</table></div>
</body></html>
"""


def write_survey(folder: Path, survey: ClusterSurvey) -> None:
    """Write cluster.json, all_reduce.csv, pairs.csv, all_reduce.png and index.html."""
    from jinja2 import Environment

    folder.mkdir(parents=True, exist_ok=True)
    document = {"verdict": survey.verdict(), **survey.numbers(), **asdict(survey), "infiniband": survey.infiniband}
    (folder / "cluster.json").write_text(json.dumps(document, indent=1) + "\n")
    _write_table(folder / "all_reduce.csv", [asdict(one) for one in survey.all_reduce])
    _write_table(folder / "pairs.csv", [asdict(pair) for pair in survey.pairs])
    _draw(folder / "all_reduce.png", survey)
    picture = base64.b64encode((folder / "all_reduce.png").read_bytes()).decode()
    slowest = sorted(survey.pairs, key=lambda pair: (not pair.error, -pair.seconds))[:20]
    template = Environment(autoescape=True, trim_blocks=True).from_string(_PAGE)
    (folder / "index.html").write_text(template.render(survey=survey, picture=picture, slowest=slowest))


def _write_table(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]) if rows else ["nothing"])
        table.writeheader()
        table.writerows(rows)


def _draw(path: Path, survey: ClusterSurvey) -> None:
    """Bandwidth and time by size, both on logarithmic axes."""
    from matplotlib.figure import Figure

    sizes = [one.size for one in survey.all_reduce]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(sizes, [one.bus_gbytes_per_second for one in survey.all_reduce], marker="o", color="#3b82f6")
    left.set(xscale="log", yscale="log", xlabel="bytes", ylabel="bus bandwidth, GB/s")
    right.plot(sizes, [one.seconds * 1e6 for one in survey.all_reduce], marker="o", color="#3b82f6")
    right.set(xscale="log", yscale="log", xlabel="bytes", ylabel="microseconds")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
