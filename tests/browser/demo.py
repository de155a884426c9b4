"""Runs with something to see, really run."""

from __future__ import annotations

import json
from pathlib import Path

from allranks.local.folders import RunsHome
from tests.local.support import allranks, pipeline, step

LOGGED = [
    {
        "step": number,
        "metrics": {"loss": 2 / number, "learning_rate": 0.1, "images_per_second": 900 + number % 7}
        | ({"validation_loss": 2.2 / number, "accuracy": 1 - 1 / number} if number % 5 == 0 else {}),
    }
    for number in range(1, 41)
]


def make_runs(folder: Path) -> dict[str, Path]:
    """Run some pipelines in an empty folder; gives their pages by what they show, and `home`, the runs folder."""
    (folder / "code").mkdir()
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, LOGGED)))
    script = f"mkdir -p outputs; cp {folder}/metrics.jsonl outputs; echo ${{{{inputs.word}}}} says rank $RANK"
    more = "code: ./code, distribution: {type: pytorch, process_count_per_instance: 2}, resources: {instance_count: 2}"
    train = step(script, inputs="word: '${{parent.inputs.word}}'", outputs="out: {type: uri_folder}", more=more)
    use = step("true", inputs="data: '${{parent.jobs.train.outputs.out}}'")
    good = pipeline(folder, f"type: pipeline\ninputs: {{word: none}}\njobs: {{train: {train}, use: {use}}}\n")
    failing = step(f"{script}; test $RANK != 3", inputs="word: x", more=more)
    bad = pipeline(folder, f"type: pipeline\njobs: {{train: {failing}, use: {step('true')}}}\n", "bad.yaml")
    trial = 'echo \'{"step": 1, "metrics": {"m": \'${{inputs.x}}\'}}\' > outputs/metrics.jsonl'
    (folder / "sweep.yaml").write_text(
        f"""type: pipeline
jobs:
  tune:
    type: sweep
    sampling_algorithm: grid
    trial: {{type: command, command: {json.dumps(trial)}, environment: "azureml:w:1", inputs: {{x: {{type: number}}, kind: {{type: string}}}}}}
    search_space: {{x: {{type: choice, values: [1, 2]}}, kind: {{type: choice, values: [a, b]}}}}
    objective: {{primary_metric: m, goal: maximize}}
    limits: {{max_total_trials: 4, max_concurrent_trials: 2}}
"""
    )
    found = {}
    for name, arguments in {
        "first": (good,),
        "good": (good, "word=second", "--scale", "train=2x1"),
        "failed": (bad, "--retries", "1"),
        "sweep": ("sweep.yaml",),
    }.items():
        (folder / "code" / "note.txt").write_text(f"of {name}\n")
        done = allranks("run", *arguments, "--no-cache", cwd=folder)
        assert done.returncode == (name == "failed"), done.stderr
        found[name] = RunsHome(folder / ".allranks").find("latest").report
    ids = [found[name].parent.name for name in ("first", "good")]
    compared = allranks("runs", "compare", *ids, "--page", "compare.html", cwd=folder)
    assert compared.returncode == 0, compared.stderr
    return found | {"compare": folder / "compare.html", "home": folder / ".allranks"}
