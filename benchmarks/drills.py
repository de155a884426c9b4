"""Random drills of trainers: whether each comes back after what strikes it, and ends with the same bits.

    python benchmarks/drills.py --each 10 --seed 1
    python benchmarks/drills.py --each 3 --seed 2 train_ddp train_fsdp

Each trainer runs on two nodes of two ranks on CPUs (those of TensorFlow on two of one), ten epochs of digits, four of
passages of our own pages and code, with a checkpoint at the end of each.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from side_by_side import RESULTS, keep

ROOT = Path(__file__).parents[1]
DIGITS, PASSAGES, LANGUAGE = "digits", "passages", "language"
SHORT = ["sequence_length=64", "vocabulary=512", "seed=1"]
SMALL = ["epochs=4", "layers=1", "width=32", "heads=4"]
TRAINERS = {
    "train_ddp": (DIGITS, "2x2", ["epochs=10"]),
    "train_torchrun": (DIGITS, "2x2", ["epochs=10"]),
    "train_fsdp": (LANGUAGE, "2x2", SMALL),
    "train_deepspeed": (DIGITS, "2x2", ["epochs=10"]),
    "train_lightning": (DIGITS, "2x2", ["epochs=10"]),
    "train_transformers": (PASSAGES, "2x2", ["epochs=4"]),
    "train_horovod": (DIGITS, "2x2", ["epochs=10"]),
    "train_horovod_keras": (DIGITS, "2x2", ["epochs=10"]),
    "train_tf_multiworker": (DIGITS, "2x1", ["epochs=10"]),
    "train_tf_parameter_server": (DIGITS, "2x1", ["epochs=10"]),
}
"""What each trains on, its nodes and the ranks of each, and its settings."""


def call_tool(*arguments: str) -> dict[str, Any]:
    """The document that a command of the tool prints, whatever became of what it runs."""
    command = [sys.executable, "-m", "allranks", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def prepare_datasets(folder: Path, home: Path) -> dict[str, Path]:
    """The datasets by name: digits, and our own pages and code, to be told apart or to be written on with."""
    for kind, found in {"prose": ROOT.glob("docs/d*.md"), "code": ROOT.glob("allranks/drill/*.py")}.items():
        (folder / kind).mkdir(parents=True)
        for path in found:
            shutil.copy(path, folder / kind)
    texts = [f"data={folder}", "dataset=files", *SHORT]
    asked = {
        DIGITS: ["prepare_data"],
        PASSAGES: ["prepare_text", "task=text_classification", *texts],
        LANGUAGE: ["prepare_text", *texts],
    }
    runs = {name: call_tool("run", *words, "--runs-dir", str(home)) for name, words in asked.items()}
    return {name: Path(run["steps"][asked[name][0]]["outputs"]["data"]) for name, run in runs.items()}


def drill_trainer(trainer: str, data: dict[str, Path], each: int, seed: int, home: Path) -> dict[str, Any]:
    """The document of random drills of one trainer."""
    dataset, scale, settings = TRAINERS[trainer]
    drawn = ["--random", str(each), "--seed", str(seed), "--notice-limit", "60", "--runs-dir", str(home)]
    values = [f"data={data[dataset]}", *settings, "log_every=2"]
    return call_tool("drill", trainer, *values, "--scale", scale, *drawn)


def summarise_drills(found: dict[str, Any]) -> dict[str, Any]:
    """What a table says of a trainer's drills."""
    if "error" in found:
        return {"error": found["error"]["message"]}
    drills = found["drills"]
    faults = [fault for drill in drills for fault in drill["faults"]]
    noticed = sorted(one["noticed_after_seconds"] for one in faults if one["noticed"])
    lost = sorted(drill["seconds_lost"] for drill in drills if drill["seconds_lost"] is not None)
    return {
        "drills": len(drills),
        "equal": sum(drill["result"] == "equal" for drill in drills),
        "hung": sum(drill["result"] == "hung" for drill in drills),
        "processes_left": sum(drill["processes_left"] for drill in drills),
        "longest_noticed_seconds": noticed[-1] if noticed else None,
        "median_seconds_lost": lost[len(lost) // 2] if lost else None,
        "undisturbed_seconds": next(one["seconds"] for one in found["undisturbed"].values()),
        "faults": [
            {"fault": f"{fault['action']} {fault['fault']}", "corrupt": fault["corrupt"], "result": drill["result"]}
            for drill in drills
            for fault in drill["faults"]
        ],
        "reasons": [f"{drill['faults'][0]['fault']}: {drill['reason']}" for drill in drills if drill["reason"]],
    }


def main() -> None:
    """Drill each trainer that is named, and keep what was found of each as soon as it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainers", nargs="*", default=list(TRAINERS), metavar="TRAINER")
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs-dir", type=Path, default=Path(".allranks"))
    arguments = parser.parse_args()
    if unknown := set(arguments.trainers) - set(TRAINERS):
        parser.error(f"{', '.join(sorted(unknown))}: no trainer. Choose from {', '.join(TRAINERS)}.")
    with tempfile.TemporaryDirectory() as folder:
        data = prepare_datasets(Path(folder), arguments.runs_dir)
    for trainer in arguments.trainers:
        seed = 100 * arguments.seed + list(TRAINERS).index(trainer)  # or all would be struck by the same few
        found = drill_trainer(trainer, data, arguments.each, seed, arguments.runs_dir)
        summary = summarise_drills(found)
        print(trainer, json.dumps(summary), flush=True)
        kept = RESULTS / "drills.json"
        before = json.loads(kept.read_text())["trainers"] if kept.exists() else {}
        keep("drills", [], trainers={**before, trainer: summary})


if __name__ == "__main__":
    main()
