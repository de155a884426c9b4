"""Prepare and train on two ranks: `allranks run` against the same two commands typed by hand with torchrun or mpirun.

    python benchmarks/by_hand.py

Both sides run the same scripts with the same arguments, threads and MLflow database, and both keep the bytecode of what
they import. By hand, the user has put the components' files together already; the engine does that as well. The
training makes 2 steps, or 10. Ranks by hand may abort while Python ends (gloo's threads): the same is measured again
then; the engine repeats such a step in its time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from side_by_side import Comparison, in_turn, keep, seconds

ROOT = Path(__file__).parents[1]
BATCH_SIZE = "512"  # of 1,257 rows: two steps in an epoch
STEPS = {2: "1", 10: "5"}
"""By the steps, the epochs that make them."""
ROUNDS = 7
TRAINERS = {"train_ddp": "pytorch", "train_horovod": "mpi"}
"""With the type of their distribution."""
MPIRUN = [
    *(str(Path(sys.executable).parent / "mpirun"), "-np", "2", "--oversubscribe", "--bind-to", "none"),
    *("--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo", "--mca", "mpi_yield_when_idle", "1"),
    *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
]
"""With the options of the engine."""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

PIPELINE = """
type: pipeline
jobs:
  prepare:
    component: {root}/components/prepare_data/component.yaml
    outputs: {{data: {{type: uri_folder}}}}
  train:
    component: {root}/components/{trainer}/component.yaml
    inputs: {{data: "${{{{parent.jobs.prepare.outputs.data}}}}", epochs: {epochs}, batch_size: {size}}}
    distribution: {{type: {kind}, process_count_per_instance: 2}}
"""


def main() -> None:
    """Measure and keep."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for epochs in STEPS.values():
            for trainer, kind in TRAINERS.items():
                text = PIPELINE.format(root=ROOT, trainer=trainer, kind=kind, epochs=epochs, size=BATCH_SIZE)
                (folder / f"{trainer}_{epochs}.yaml").write_text(text)
        for component in ("prepare_data", *TRAINERS):
            shutil.copytree(ROOT / "components" / component, folder / component)
            shutil.copytree(
                ROOT / "shared", folder / component / "shared", ignore=shutil.ignore_patterns("__pycache__")
            )
        cold = [prepare_and_train(folder, steps, "", "0.7") for steps in STEPS]
        cold.append(prepare_and_train(folder, 2, "", "1", "train_horovod"))
        keep("by_hand", cold)


def prepare_and_train(folder: Path, steps: int, how: str, limit: str, trainer: str = "train_ddp") -> Comparison:
    """The pipeline of two steps, with so many of the training."""
    name, launcher = ("", "torchrun") if trainer == "train_ddp" else (f" by {trainer}", "mpirun")
    return in_turn(
        f"prepare and train{name} {steps} steps, 2 ranks{how}",
        ("allranks run", lambda: engine(folder, trainer, STEPS[steps])),
        (f"{launcher} by hand", lambda: by_hand(folder, trainer, STEPS[steps])),
        rounds=ROUNDS,
        limit=limit,
    )


def engine(folder: Path, trainer: str, epochs: str) -> float:
    """One run of the pipeline, nothing reused."""
    command = [sys.executable, "-m", "allranks", "run", f"{trainer}_{epochs}.yaml", "--no-cache"]
    return measured(lambda: run([*command, "--runs-dir", str(folder / "runs")], folder))


def by_hand(folder: Path, trainer: str, epochs: str) -> float:
    """The same two commands, with torchrun starting the ranks of both, or mpirun those of the second."""
    data, model = folder / "data", folder / "out"
    prepare = [*TORCHRUN, "prepare_data.py", "--output-data", str(data)]
    outputs = [part for port in ("model", "checkpoints", "metrics") for part in (f"--{port}", str(model / port))]
    start = TORCHRUN if trainer == "train_ddp" else [*MPIRUN, sys.executable]
    train = [*start, f"{trainer}.py", "--data", str(data), "--epochs", epochs, "--batch-size", BATCH_SIZE, *outputs]

    def both() -> None:
        run(prepare, folder / "prepare_data")
        run(train, folder / trainer)

    def clear() -> None:
        for old in (data, model):
            shutil.rmtree(old, ignore_errors=True)

    return measured(both, clear)


class AbortedError(Exception):
    """Python was aborted at its end."""


def measured(action: Callable[[], None], before: Callable[[], None] = lambda: None) -> float:
    """The seconds of an action, which is done again where Python was aborted at its end."""
    for _ in range(9):
        before()
        try:
            return seconds(action)
        except AbortedError:
            continue
    raise SystemExit("Python was aborted nine times in a row")


def run(command: list[str], cwd: Path) -> None:
    """Run a command as the engine would: its threads split over two ranks, metrics to a database."""
    threads = str(max(1, len(os.sched_getaffinity(0)) // 2))
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}" if "allranks" in command else "", "OMP_NUM_THREADS": threads}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process compiles all that it imports
    if "allranks" not in command:
        environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{cwd.parent}/by_hand.db"
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    if done.returncode and "Signal 6 (SIGABRT)" in done.stderr:
        raise AbortedError
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
