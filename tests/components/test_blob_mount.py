"""Trainers whose checkpoints, model and metrics lie on a mount as awkward as a blob store, killed and started again.

A long version: ``ALLRANKS_TEST_KILLS=20 pytest -m "" tests/components/test_blob_mount.py``.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from shared.checkpoint.choose import newest_valid_checkpoint
from tests.blob_mount import WORST, blob_mount, can_mount
from tests.components.training import arguments, furthest, train, training, write_digits
from tests.components.training import weights as load_weights
from tests.helpers import ROOT, finish, free_port, started
from tests.shared.samples import write_language_dataset, write_text_classification_dataset

pytestmark = pytest.mark.skipif(not can_mount(), reason="mounting with FUSE needs root and /dev/fuse")

KILLS = int(os.environ.get("ALLRANKS_TEST_KILLS", "2"))
TINY = {"model_type": "bert", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 32}  # fmt: skip


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"), rows=400)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    with blob_mount(tmp_path / "blob", WORST) as place:
        yield place


def last_step(place: Path) -> int:
    """The newest step that has begun to be saved, seen behind the mount."""
    steps = [int(path.name[5:]) for path in place.glob("behind/out/checkpoints/step-*")]
    return max(steps, default=0)


def weights(out: Path) -> dict[str, bytes]:
    (path,) = (out / "model").rglob("*.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(path).items()}


def train_with_kills(data: Path, place: Path, kills: int, options: Mapping[str, Any]) -> None:
    """Train on the mount in `place`, and kill a rank at random moments: in the middle of a save each second time."""
    draw, out, killed = random.Random(kills), place / "mount" / "out", 0
    for number in range(kills):
        with training(data, out, **options) as ranks:
            before, until = last_step(place), time.monotonic() + 120
            while last_step(place) <= before and all(rank.process.poll() is None for rank in ranks):
                assert time.monotonic() < until, ranks[0].stderr
                time.sleep(0.001)
            time.sleep(draw.random() * (0.1 if number % 2 else 0.6))
            killed += all(rank.process.poll() is None for rank in ranks)
            draw.choice(ranks).kill(signal.SIGKILL)
            finish(ranks, 120)
    print(f"killed {killed} of {kills} times before the end")
    assert killed >= kills / 2
    whole = newest_valid_checkpoint(place / "behind" / "out" / "checkpoints")
    results = train(data, out, **options)
    assert whole is None or f"step {int(whole.name[5:])}, epoch" in results[0].stdout


def agrees(data: Path, tmp_path: Path, options: Mapping[str, Any], kills: int = KILLS) -> None:
    train(data, tmp_path / "whole", **options)
    train_with_kills(data, tmp_path / "blob", kills, options)
    behind = tmp_path / "blob" / "behind" / "out"
    assert weights(behind) == weights(tmp_path / "whole")
    assert json.loads((behind / "metrics" / "metrics.json").read_text())["history"]


@pytest.mark.slow
def test_ddp_killed_in_the_middle_of_a_save(digits: Path, mount: Path, tmp_path: Path) -> None:
    options = {"epochs": 12, "batch_size": 32, "checkpoint_every": 5, "log_every": 2, "processes": 2}
    agrees(digits, tmp_path, options, max(1, KILLS // 2))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "script", ["train_ddp", "train_fsdp", "train_deepspeed", "train_lightning", "train_transformers"]
)
def test_killed_at_random_moments_it_ends_with_the_same_bits(
    script: str, digits: Path, mount: Path, tmp_path: Path
) -> None:
    often = {"script": script, "checkpoint_every": 3, "log_every": 2, "processes": 2, "batch_size": 16}
    epochs = 2 + KILLS
    small = {"layers": 2, "width": 32, "heads": 4}
    if script == "train_transformers":
        data = write_text_classification_dataset(tmp_path / "passages")
        agrees(data, tmp_path, often | of_transformers(tmp_path) | {"epochs": 2 * epochs})
    elif script == "train_fsdp":
        agrees(
            write_language_dataset(tmp_path / "text", rows=(805, 13, 8)),
            tmp_path,
            often | small | {"epochs": epochs // 2},
        )
    else:
        agrees(digits, tmp_path, often | {"epochs": epochs})


def of_transformers(folder: Path) -> dict[str, Any]:
    """Options of a small model of which each rank has a part."""
    (folder / "tiny").mkdir()
    (folder / "tiny" / "config.json").write_text(json.dumps(TINY))
    return {"batch_size": 12, "base_config": folder / "tiny", "sharding": "fsdp"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fewer_and_fewer_ranks_go_on_from_what_is_on_the_mount(mount: Path, tmp_path: Path) -> None:
    data, still = write_text_classification_dataset(tmp_path / "passages"), {"hidden_dropout_prob": 0.0}
    options = of_transformers(tmp_path) | {"script": "train_transformers", "epochs": 3, "checkpoint_every": 3}
    still["attention_probs_dropout_prob"] = 0.0
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(TINY | still))
    train(data, tmp_path / "whole", **options, learning_rate=0.001)
    for ranks, begun in ((4, 0), (2, 3)):  # each is killed when it has begun to write the second of its checkpoints
        with training(data, mount / "out", **options, learning_rate=0.001, processes=ranks) as running:
            until = time.monotonic() + 120
            while last_step(tmp_path / "blob") < begun + 6:
                assert time.monotonic() < until, running[0].stderr
                time.sleep(0.001)
            running[-1].kill(signal.SIGKILL)
            finish(running, 120)
    (last,) = train(data, mount / "out", **options, learning_rate=0.001)
    assert re.search(r"continuing from .*: step \d+, epoch", last.stdout), last.stdout
    whole, resumed = load_weights(tmp_path / "whole"), load_weights(tmp_path / "blob" / "behind" / "out")
    assert furthest(whole, resumed) < 1e-5


# The environment's own mpirun, whether or not its bin folder is in PATH.
MPIRUN = str(Path(sys.executable).parent / "mpirun")
MPI = (MPIRUN, "--allow-run-as-root", "--oversubscribe", "-np", "2")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("script", ["train_horovod", "train_horovod_keras", "train_tf_multiworker"])
def test_horovod_and_keras_end_with_the_same_bits(script: str, digits: Path, mount: Path, tmp_path: Path) -> None:
    place, draw = tmp_path / "blob", random.Random(0)
    options = {"epochs": 3, "batch_size": 16, "checkpoint_every": 3, "log_every": 2}
    run_launched(script, digits, tmp_path / "whole", options)
    for number in range(KILLS):
        run_launched(script, digits, mount / "out", options, place, draw.random() * (0.1 if number % 2 else 1.0))
    run_launched(script, digits, mount / "out", options)
    assert weights(place / "behind" / "out") == weights(tmp_path / "whole")


def run_launched(
    script: str, data: Path, out: Path, options: Mapping[str, object], place: Path | None = None, pause: float = 0.0
) -> None:
    """Train on two ranks, under mpirun or with TF_CONFIG; with a `place` kill one after its next save has begun."""
    out.mkdir(parents=True, exist_ok=True)
    path = ROOT / "components" / script / f"{script}.py"
    code = f"""
        import runpy, sys
        sys.argv = {[str(path), *arguments(data, out, **options)]!r}
        runpy.run_path({str(path)!r}, run_name="__main__")
    """
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "AZUREML_RUN_ID": f"blob_{free_port()}"}
    workers = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    tasks = [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}} for index in range(2)]
    mpi = "horovod" in script
    variables = [quiet] if mpi else [{**quiet, "TF_CONFIG": json.dumps(task)} for task in tasks]
    with started(code, variables, out, launcher=[*MPI, sys.executable] if mpi else ()) as ranks:
        if place is not None:
            before, until = last_step(place), time.monotonic() + 120
            while last_step(place) <= before and ranks[0].process.poll() is None:
                assert time.monotonic() < until, ranks[0].stderr
                time.sleep(0.001)
            time.sleep(pause)
            pids = descendants(ranks[0].process.pid) if mpi else [rank.process.pid for rank in ranks]
            for pid in pids[-1:]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        results = finish(ranks, 200)
    assert place is not None or not any(result.returncode for result in results), results[0].stderr[-3000:]


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [found for child in children for found in (int(child), *descendants(int(child)))]
