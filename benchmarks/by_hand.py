"""Prepare and train on two ranks: `allranks run` against the same two commands typed by hand with torchrun.

    python benchmarks/by_hand.py

Both sides run the same scripts with the same arguments, threads and MLflow database. By hand, the user has put the
components' files together already; the engine does that as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from side_by_side import in_turn, keep, seconds

ROOT = Path(__file__).parents[1]
EPOCHS = "5"

PIPELINE = """
type: pipeline
jobs:
  prepare:
    component: {root}/components/prepare_data/component.yaml
    outputs: {{data: {{type: uri_folder}}}}
  train:
    component: {root}/components/train_ddp/component.yaml
    inputs: {{data: "${{{{parent.jobs.prepare.outputs.data}}}}", epochs: {epochs}}}
    distribution: {{type: pytorch, process_count_per_instance: 2}}
"""


def main() -> None:
    """Measure and keep."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pipeline.yaml").write_text(PIPELINE.format(root=ROOT, epochs=EPOCHS))
        for component in ("prepare_data", "train_ddp"):
            shutil.copytree(ROOT / "components" / component, folder / component)
            shutil.copytree(
                ROOT / "shared", folder / component / "shared", ignore=shutil.ignore_patterns("__pycache__")
            )
        compared = in_turn(
            "prepare and train, 2 ranks",
            ("allranks run", lambda: engine(folder)),
            ("torchrun by hand", lambda: by_hand(folder)),
            rounds=5,
            limit="1.0",
        )
        keep("by_hand", [compared])


def engine(folder: Path) -> float:
    """One run of the pipeline, nothing reused."""
    command = [
        sys.executable,
        "-m",
        "allranks",
        "run",
        "pipeline.yaml",
        "--no-cache",
        "--runs-dir",
        str(folder / "runs"),
    ]
    return seconds(lambda: run(command, folder))


def by_hand(folder: Path) -> float:
    """The same two commands, with torchrun starting the ranks of both."""
    data, model = folder / "data", folder / "out"
    for old in (data, model):
        shutil.rmtree(old, ignore_errors=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    prepare = [*torchrun, "prepare_data.py", "--output-data", str(data)]
    outputs = [part for port in ("model", "checkpoints", "metrics") for part in (f"--{port}", str(model / port))]
    train = [*torchrun, "train_ddp.py", "--data", str(data), "--epochs", EPOCHS, *outputs]

    def both() -> None:
        run(prepare, folder / "prepare_data")
        run(train, folder / "train_ddp")

    return seconds(both)


def run(command: list[str], cwd: Path) -> None:
    """Run a command as the engine would: its threads split over two ranks, metrics to a database."""
    threads = str(max(1, len(os.sched_getaffinity(0)) // 2))
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}" if "allranks" in command else "", "OMP_NUM_THREADS": threads}
    if "allranks" not in command:
        environ |= {"MLFLOW_TRACKING_URI": f"sqlite:///{cwd.parent}/by_hand.db", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
