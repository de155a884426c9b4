"""The trials of autotuning as files: for programs, for spreadsheets, and one page for people."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, TypedDict

from shared.storage import make_folder, write_text

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>ZeRO stage and micro-batch</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 0 auto; padding: 32px 24px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 14px 5px 0; white-space: nowrap; } td:last-child { width: 40%; }
tr { border-bottom: 1px solid #8884; } .chosen { font-weight: 650; } div { overflow-x: auto; }
.bar { height: 0.8em; border-radius: 3px; background: #3b82f6; }
</style></head><body>
<h1>Stage {{ chosen.zero_stage }}, micro-batch {{ chosen.micro_batch }} x {{ chosen.accumulation_steps }}</h1>
<p>The fastest of {{ trials|length }} short trials of a batch of {{ batch_size }} on {{ world_size }} ranks. Of trials
within 3 % of the fastest the one with the least memory is taken.</p>
<div><table>
<tr><th>stage</th><th>micro-batch</th><th>accumulation</th><th>memory, MB</th><th>samples/s</th><th></th></tr>
{% for trial in trials %}<tr{% if trial == chosen %} class="chosen"{% endif %}><td>{{ trial.zero_stage }}</td>
<td>{{ trial.micro_batch }}</td><td>{{ trial.accumulation_steps }}</td><td>{{ "{:,.0f}".format(trial.memory_mb) }}</td>
<td>{{ trial.failure or "{:,.0f}".format(trial.samples_per_second) }}</td>
<td><div class="bar" style="width: {{ "%.1f" | format(100 * trial.samples_per_second / fastest) }}%"></div></td></tr>
{% endfor %}</table></div>
</body></html>
"""


class TuningDocument(TypedDict):
    """All trials, and the one of them that was chosen; each as the fields of a `TuningTrial` by name."""

    batch_size: int
    world_size: int
    chosen: dict[str, Any]
    trials: list[dict[str, Any]]


def write_tuning_report(folder: Path, document: TuningDocument) -> None:
    """Write autotuning.json, autotuning.csv and autotuning.html to a folder, which is made if needed."""
    from jinja2 import Environment

    make_folder(folder)
    write_text(folder / "autotuning.json", json.dumps(document, indent=1) + "\n")
    text = io.StringIO()
    table = csv.DictWriter(text, list(document["chosen"]))
    table.writeheader()
    table.writerows(document["trials"])
    write_text(folder / "autotuning.csv", text.getvalue())
    page = Environment(autoescape=True, trim_blocks=True).from_string(_PAGE)
    fastest = max(trial["samples_per_second"] for trial in document["trials"])
    write_text(folder / "autotuning.html", page.render(**document, fastest=fastest))
