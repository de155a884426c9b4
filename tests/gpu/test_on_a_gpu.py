"""What only a machine with a GPU can show: `pytest tests/gpu` there; elsewhere all of it is skipped. One GPU is enough."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.components.frameworks import run_killed_trainer, run_trainer
from tests.local.support import ROOT, allranks, run_json
from tests.waiting import TIMEOUT

pytestmark = pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="there is no GPU")

RESNET = ("architecture=resnet", "batch_size=64", "deterministic=true")
TRAINERS = ("train_ddp", "train_torchrun", "train_lightning", "train_deepspeed")
STARTED_AGAIN = tuple(name for name in TRAINERS if name != "train_torchrun")
"""Those whose ranks the engine starts again; torchrun does it itself."""


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in pictures, as `prepare_data` writes them."""
    return _prepared(tmp_path_factory, "prepare_data")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The standard library's sources, as `prepare_text` writes them."""
    return _prepared(tmp_path_factory, "prepare_text", "vocabulary=1024", "sequence_length=256")


def _prepared(factory: pytest.TempPathFactory, component: str, *inputs: str) -> Path:
    document = run_json(component, *inputs, cwd=factory.mktemp(component))
    assert document["exit"] == 0, document
    return Path(document["steps"][component]["outputs"]["data"])


def weights(step: dict[str, Any]) -> bytes:
    """The weights of the model that a trainer has made."""
    files = sorted(Path(step["outputs"]["model"]).rglob("*.safetensors"))
    assert files
    return b"".join(file.read_bytes() for file in files)


def metrics(step: dict[str, Any]) -> list[dict[str, Any]]:
    """What a step has reported."""
    files = sorted(Path(step["folder"]).rglob("metrics.jsonl"))
    return [json.loads(line)["metrics"] for file in files for line in file.read_text().splitlines()]


OF_TEXT = ("layers=2", "width=256", "batch_size=16", "max_steps=120", "precision=bf16", "deterministic=true")


@pytest.mark.parametrize(
    ("trainer", "dataset", "options"),
    [*((trainer, "digits", (*RESNET, "epochs=20")) for trainer in STARTED_AGAIN), ("train_fsdp", "text", OF_TEXT)],
)
def test_a_training_that_was_killed_ends_with_the_same_bits(
    trainer: str, dataset: str, options: tuple[str, ...], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    data = request.getfixturevalue(dataset)
    undisturbed = run_trainer(trainer, data, tmp_path, "1x1", *options, "checkpoint_every=20")
    assert "on cuda" in undisturbed["logs"]
    killed = run_killed_trainer(
        trainer, data, tmp_path / "killed", "1x1", *options, "checkpoint_every=20", step=60, rank=0
    )
    assert weights(undisturbed) == weights(killed)


@pytest.mark.parametrize(
    ("trainer", "options"),
    [
        *((trainer, [f"precision={half}"]) for trainer in TRAINERS for half in ("bf16", "fp16")),
        ("train_ddp", ["precision=bf16", "architecture=resnet", "compile=true"]),
    ],
)
def test_halves_learn_as_well_and_compiled(trainer: str, options: list[str], digits: Path, tmp_path: Path) -> None:
    step = run_trainer(trainer, digits, tmp_path, "1x1", *options, "epochs=10")
    assert step["metrics"]["validation_accuracy"] > 0.9, step["metrics"]


def test_a_language_model_in_parts_learns(text: Path, tmp_path: Path) -> None:
    more = ("compile=true", "gradient_checkpointing=true")
    options = ("layers=2", "width=128", "batch_size=16", "max_steps=100", "precision=bf16", *more)
    step = run_trainer("train_fsdp", text, tmp_path, "1x1", *options)
    losses = [line["loss"] for line in metrics(step) if "loss" in line]
    assert losses[-1] < losses[0] - 1, losses
    assert any("mfu" in name.lower() for line in metrics(step) for name in line), metrics(step)[-1]


@pytest.mark.parametrize(
    ("pipeline", "inputs"),
    [
        ("image_classification", ["nodes=1"]),
        ("image_classification_torchrun", ["nodes=1"]),
        ("language_model", ["max_steps=100"]),
        ("finetune_text", ["epochs=1", "vocabulary=1024"]),
    ],
)
def test_each_pipeline_computes_on_the_gpu(pipeline: str, inputs: list[str], tmp_path: Path) -> None:
    document = run_json(ROOT / "pipelines" / f"{pipeline}.yaml", "processes_per_node=1", *inputs, cwd=tmp_path)
    assert document["exit"] == 0, {name: step.get("failure") for name, step in document["steps"].items()}
    for name in ("train", "evaluate"):
        logs = (Path(document["steps"][name]["folder"]) / "user_logs").glob("*")
        assert any("on cuda" in log.read_text() for log in logs), name


def test_the_cluster_check_measures_the_gpu(tmp_path: Path) -> None:
    document = run_json("check_cluster", "--scale", "1x1", cwd=tmp_path)
    assert document["exit"] == 0, document
    told = "".join(log.read_text() for log in Path(document["run_dir"]).glob("steps/*/user_logs/*"))
    assert "cuda" in told, told
    print(told)


def test_more_ranks_than_gpus_train_on_the_cpu_and_it_is_said_before(digits: Path, tmp_path: Path) -> None:
    count = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.splitlines())
    step = run_trainer("train_ddp", digits, tmp_path, f"1x{count + 1}", "epochs=1")
    assert "gloo on cpu" in step["logs"], step["logs"]
    planned = allranks("run", "train_ddp", f"data={digits}", "--scale", f"1x{count + 1}", "--dry-run", cwd=tmp_path)
    assert f"rank(s) on {count} GPU(s)" in planned.stdout + planned.stderr


def test_ranks_that_see_the_same_gpu_are_refused_with_the_arithmetic(tmp_path: Path) -> None:
    count = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.splitlines())
    script = tmp_path / "meet.py"
    script.write_text('from shared.distributed import init\nwith init("torch"):\n    pass\n')
    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count + 1}")
    refused = subprocess.run(
        [sys.executable, *torchrun, str(script)],
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert refused.returncode != 0
    assert re.search(r"see the same GPU|too few", refused.stdout + refused.stderr), refused.stderr


def test_what_is_used_of_the_gpu_is_told_by_rank(digits: Path, tmp_path: Path) -> None:
    run_trainer("train_ddp", digits, tmp_path, "1x1", "architecture=resnet18", "batch_size=256", "epochs=100")
    shown = json.loads(allranks("runs", "show", "latest", "--json", cwd=tmp_path).stdout)
    used = shown["steps"]["train_ddp"]["resources"]
    print(json.dumps(used))
    (gpu,) = used["gpus"].values()
    assert gpu["memory_peak_bytes"] > 1e8
    assert 0 <= gpu["use_mean"] <= 100


def test_the_time_split_is_in_the_log_of_a_training(digits: Path, tmp_path: Path) -> None:
    step = run_trainer("train_ddp", digits, tmp_path, "1x1", "architecture=resnet18", "epochs=3")
    (*_, last) = re.findall(r"time data (\d+)%, compute (\d+)%, wait (\d+)%, save (\d+)%", step["logs"])
    assert sum(map(int, last)) in range(98, 103)
    print(last)
