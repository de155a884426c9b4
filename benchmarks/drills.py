"""Random drills of trainers: whether each comes back after what strikes it, and ends with the same bits.

    python benchmarks/drills.py --each 10 --seed 1 --data DATASET --text TEXTS train_ddp train_fsdp …

DATASET is what `prepare_data` writes, TEXTS what `prepare_text` does, for `train_transformers`. Each trainer
runs on two nodes of two ranks on CPUs, ten epochs of digits, with a checkpoint at the end of each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from side_by_side import RESULTS, keep

SCALES = {"train_tf_multiworker": "2x1", "train_tf_parameter_server": "2x1"}
SETTINGS = {"train_transformers": ["epochs=4"]}
EVERY = ["log_every=2"]


def drill_trainer(trainer: str, data: Path, each: int, seed: int, home: Path) -> dict[str, Any]:
    """The document of random drills of one trainer."""
    values = [f"data={data}", *SETTINGS.get(trainer, ["epochs=10"]), *EVERY]
    scale = SCALES.get(trainer, "2x2")
    drawn = ["--random", str(each), "--seed", str(seed), "--notice-limit", "60"]
    command = [sys.executable, "-m", "allranks", "drill", trainer, *values, "--scale", scale, *drawn]
    done = subprocess.run([*command, "--runs-dir", str(home), "--json"], stdout=subprocess.PIPE, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


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
    parser.add_argument("trainers", nargs="+")
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--runs-dir", type=Path, default=Path(".allranks"))
    arguments = parser.parse_args()
    for trainer in arguments.trainers:
        data = arguments.text if trainer == "train_transformers" else arguments.data
        found = drill_trainer(trainer, data.resolve(), arguments.each, arguments.seed, arguments.runs_dir)
        summary = summarise_drills(found)
        print(trainer, json.dumps(summary), flush=True)
        kept = RESULTS / "drills.json"
        before = json.loads(kept.read_text())["trainers"] if kept.exists() else {}
        keep("drills", [], trainers={**before, trainer: summary})


if __name__ == "__main__":
    main()
