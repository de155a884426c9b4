"""Runs with something to see, really run."""

from __future__ import annotations

from pathlib import Path

from allranks.local.folders import RunsHome
from tests.local.support import ROOT, allranks, pipeline, step

TRAIN = """\
import json, math, os, pathlib, random, signal, socket, sys
sys.path.append(CHECKOUT)
from tests.waiting import wait_for

word, rate, fails = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
rank = os.environ.get("RANK", "0")
print(f"{word} says rank {rank}")
random.seed(1)
if rank == "0":
    os.makedirs("outputs", exist_ok=True)
    with open("outputs/metrics.jsonl", "w") as file:
        for number in range(1, 41):
            loss = 2.2 * math.exp(-number * rate) + 0.1 + 0.05 * random.random()
            metrics = {"loss": loss, "learning_rate": rate, "images_per_second": 900 + 90 * random.random()}
            if fails:
                metrics["gradient_norm"] = float("nan") if number > 30 else loss
            if number % 5 == 0:
                metrics |= {"validation_loss": 1.1 * loss, "accuracy": 1 - loss / 2.4}
            file.write(json.dumps({"step": number, "total": 40, "metrics": metrics}) + "\\n")
            if (word, number) == ("halfway", 24):
                file.flush()
                signal.pause()
if word == "second":  # its use of the machine is sampled while it runs
    wait_for((pathlib.Path.cwd().parents[2] / "resources.jsonl").is_file)
place = (os.environ.get("MASTER_ADDR"), int(os.environ.get("MASTER_PORT", "0")))
if fails and rank == "0":  # what it has logged is there before another one fails
    socket.create_server(place).accept()
if rank in fails:
    wait_for(lambda: socket.socket().connect_ex(place) == 0)
    raise RuntimeError("there is no more memory")
"""

SWEEP = """\
type: pipeline
jobs:
  tune:
    type: sweep
    sampling_algorithm: random
    trial:
      type: command
      code: ./code
      command: python train.py ${{inputs.kind}} ${{inputs.rate}}
      environment: azureml:own:1
      inputs: {rate: {type: number}, kind: {type: string}}
    search_space:
      rate: {type: uniform, min_value: 0.02, max_value: 0.3}
      kind: {type: choice, values: [sgd, adam]}
    objective: {primary_metric: loss, goal: minimize}
    limits: {max_total_trials: 8, max_concurrent_trials: 2}
"""


def make_runs(folder: Path) -> dict[str, Path]:
    """Run some pipelines in an empty folder; gives their pages by what they show, and `home`, the runs folder."""
    (folder / "code").mkdir()
    more = "code: ./code, distribution: {type: pytorch, process_count_per_instance: 2}, resources: {instance_count: 2}"
    script = "python train.py ${{inputs.word}} ${{inputs.rate}}"
    bound = "word: '${{parent.inputs.word}}', rate: '${{parent.inputs.rate}}'"
    train = step(script, inputs=bound, outputs="out: {type: uri_folder}", more=more)
    use = step("true", inputs="data: '${{parent.jobs.train.outputs.out}}'")
    inputs = "inputs: {word: none, rate: 0.1}"
    pipeline(folder, f"type: pipeline\n{inputs}\njobs: {{train: {train}, use: {use}}}\n", "good.yaml")
    failing = step(f"{script} 3", inputs=bound, outputs="out: {type: uri_folder}", more=more)
    pipeline(folder, f"type: pipeline\n{inputs}\njobs: {{train: {failing}, use: {use}}}\n", "bad.yaml")
    (folder / "sweep.yaml").write_text(SWEEP)
    found = {}
    for name, arguments in {
        "first": ("good.yaml",),
        "good": ("good.yaml", "word=second", "rate=0.2", "--scale", "train=2x1"),
        "failed": ("bad.yaml", "--retries", "1"),
        "sweep": ("sweep.yaml",),
    }.items():
        (folder / "code" / "train.py").write_text(f"CHECKOUT = {str(ROOT)!r}\n{TRAIN}# of {name}\n")
        done = allranks("run", *arguments, "--no-cache", cwd=folder)
        assert done.returncode == (name == "failed"), done.stderr
        found[name] = RunsHome(folder / ".allranks").find("latest").report
    ids = [found[name].parent.name for name in ("first", "good")]
    compared = allranks("runs", "compare", *ids, "--page", "compare.html", cwd=folder)
    assert compared.returncode == 0, compared.stderr
    return found | {"compare": folder / "compare.html", "home": folder / ".allranks"}
