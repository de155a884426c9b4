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
/* Made by `python -m allranks.renew`. */
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
th, td { text-align: right; white-space: nowrap; } td:last-child { width: 40%; vertical-align: middle; }
.chosen { font-weight: 650; } .bar { height: 0.8em; border-radius: 3px; background: var(--accent); }
@media (max-width: 600px) { th { white-space: normal; } th:last-child, td:last-child { display: none; } }
</style></head><body><main>
<h1>Stage {{ chosen.zero_stage }}, micro-batch {{ chosen.micro_batch }} x {{ chosen.accumulation_steps }}</h1>
<p>The fastest of {{ trials|length }} short trials of a batch of {{ batch_size }} on {{ world_size }}
{{ "rank" if world_size == 1 else "ranks" }}. Of trials
within 3 % of the fastest the one with the least memory is taken.</p>
<div class="scroll" tabindex="0" role="region" aria-label="The trials">
<table>
<tr><th>stage</th><th>micro-batch</th><th>accumulation</th><th>memory, MB</th><th>samples/s</th><th></th></tr>
{% for trial in trials %}<tr{% if trial == chosen %} class="chosen"{% endif %}><td>{{ trial.zero_stage }}</td>
<td>{{ trial.micro_batch }}</td><td>{{ trial.accumulation_steps }}</td><td>{{ "{:,.0f}".format(trial.memory_mb) }}</td>
<td>{{ trial.failure or speed(trial.samples_per_second) }}</td>
<td><div class="bar" style="width: {{ "%.1f" | format(100 * trial.samples_per_second / fastest) }}%"></div></td></tr>
{% endfor %}</table></div>
</main></body></html>
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
    fastest = max(trial["samples_per_second"] for trial in document["trials"]) or 1.0  # all may have failed
    write_text(folder / "autotuning.html", page.render(**document, fastest=fastest, speed=speed_words))


def speed_words(samples_per_second: float) -> str:
    """Samples per second; slow ones with two digits, which would read 0 without."""
    return f"{samples_per_second:,.0f}" if samples_per_second >= 10 else f"{samples_per_second:.2g}"
