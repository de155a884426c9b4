"""Prepare and train on two ranks: `allranks run` against the same two commands typed by hand with torchrun or mpirun.

    python benchmarks/by_hand.py

Both sides run the same scripts with the same arguments, threads and MLflow database, and both keep the bytecode of what
they import. By hand, the user has put the components' files together already; the engine does that as well. The
training makes 2 steps, or 10. Warm is after `allranks warm` and two runs. Ranks by hand may abort while Python ends
(gloo's threads): the same is measured again then; the engine repeats such a step in its time. The changed script
trains three steps, and is another text each time. The pipeline image_classification is run a second time with other
epochs, warm, against what its first run takes without.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from side_by_side import Comparison, in_turn, keep, seconds

ROOT = Path(__file__).parents[1]
BATCH_SIZE = "512"  # of 1,257 rows: two steps in an epoch
STEPS = {2: "1", 10: "5"}
"""By the steps, the epochs that make them."""
ROUNDS = 7
NUMBERS = itertools.count()
WARM_EPOCHS, COLD_EPOCHS = itertools.count(3), itertools.count(5)  # the same in each round: two runs warm up
TRAINERS = {"train_ddp": "pytorch", "train_horovod": "mpi"}
"""With the type of their distribution."""
MPIRUN = [
    *(str(Path(sys.executable).parent / "mpirun"), "-np", "2", "--oversubscribe", "--bind-to", "none"),
    *("--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo", "--mca", "mpi_yield_when_idle", "1"),
    *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
]
"""With the options of the engine."""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

SCRIPT = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed({number})
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(16, 64)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""

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
        with warmed(folder):
            warm = [prepare_and_train(folder, steps, ", warm", "0.2") for steps in STEPS]
            warm.append(prepare_and_train(folder, 2, ", warm", "1/3", "train_horovod"))
            changed = in_turn(
                "a changed script on 2 ranks, warm",
                ("allranks run", lambda: changed_script(folder, by_engine=True)),
                ("torchrun by hand", lambda: changed_script(folder, by_engine=False)),
                rounds=ROUNDS,
                limit="0.5 s",
            )
            keep("by_hand", [*cold, *warm, changed])  # what is measured is not lost with what fails later
            again = in_turn(
                "image_classification with other epochs",
                ("a second run, warm", lambda: classification(WARM_EPOCHS, folder, "--runs-dir", str(folder / "kept"))),
                (
                    "a first run, cold",
                    lambda: classification(COLD_EPOCHS, folder, "--no-cache", XDG_RUNTIME_DIR=str(folder / "none")),
                ),
                rounds=ROUNDS,
                limit="1/3",
            )
        keep("by_hand", [*cold, *warm, changed, again])


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


@contextmanager
def warmed(folder: Path) -> Iterator[None]:
    """Keep templates for what runs inside, where nobody else does."""
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    warm = [sys.executable, "-m", "allranks", "warm"]
    run(warm, folder)
    try:
        for _ in range(2):
            for trainer in TRAINERS:
                engine(folder, trainer, STEPS[2])
            changed_script(folder, by_engine=True)
            classification(WARM_EPOCHS, folder, "--runs-dir", str(folder / "kept"))
            time.sleep(10)  # what was imported too late for this run is there for the next one
        yield
    finally:
        run([*warm, "--stop"], folder)


def changed_script(folder: Path, *, by_engine: bool) -> float:
    """A run of a script that nobody has run before."""
    (folder / "script").mkdir(exist_ok=True)
    (folder / "script" / "changed.py").write_text(SCRIPT.format(number=next(NUMBERS)))
    if by_engine:
        command = [sys.executable, "-m", "allranks", "run", "script/changed.py", "--scale", "1x2"]
    else:
        command = [*TORCHRUN, "script/changed.py"]
    return measured(lambda: run(command, folder))


def classification(epochs: Iterator[int], folder: Path, *options: str, **extra: str) -> float:
    """A run of the library's pipeline, with epochs that no run has had; what was prepared is reused if it is there."""
    command = [sys.executable, "-m", "allranks", "run", str(ROOT / "pipelines" / "image_classification.yaml")]
    command += [f"epochs={next(epochs)}", *options]
    return seconds(lambda: run(command, folder, **extra))


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


def run(command: list[str], cwd: Path, **extra: str) -> None:
    """Run a command as the engine would: its threads split over two ranks, metrics to a database."""
    threads = str(max(1, len(os.sched_getaffinity(0)) // 2))
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}" if "allranks" in command else "", "OMP_NUM_THREADS": threads}
    environ |= extra
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
