"""train_fsdp: one loss curve however the model is divided, checkpoints that other ranks go on from, wrong uses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shared.checkpoint.reading import CheckpointReader, newest_valid_checkpoint
from shared.data import Dataset
from shared.models.predictor import load_predictor
from shared.training.torch.objective import objective_of
from tests.components.support import run_component
from tests.components.training import arguments, check_times, furthest, kill_at, lines, train, weights
from tests.shared.samples import write_language_dataset

STEPS = 12
LONG = 50
"""Steps after which a model has learned more than chance allows."""
OPTIONS: dict[str, Any] = {
    "script": "train_fsdp",
    "layers": 2,
    "width": 32,
    "heads": 4,
    "batch_size": 16,
    "accumulation_steps": 2,
    "max_steps": STEPS,
    "log_every": 1,
    "checkpoint_every": STEPS,
}
DIVISIONS: dict[str, dict[str, Any]] = {
    "1": {"processes": 1},
    "2": {"processes": 2},
    "4": {"processes": 4},
    "tensor 2": {"processes": 2, "tensor_parallel": 2},
    "pipeline 2": {"processes": 2, "pipeline_parallel": 2},
    "data 2 x tensor 2": {"processes": 4, "nodes": 1, "tensor_parallel": 2},
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_dataset(tmp_path_factory.mktemp("text"), rows=(16 * STEPS + 5, 13, 8))


def curve(out: Path) -> dict[int, float]:
    """Loss of each step; of one that was made twice the last."""
    return {line["step"]: line["metrics"]["loss"] for line in lines(out) if "loss" in line["metrics"]}


def generators(out: Path) -> Any:
    """Where the random numbers of rank 0 were at the newest checkpoint."""
    newest = newest_valid_checkpoint(out / "checkpoints")
    return CheckpointReader(newest).own_state(0)["generators"]


def gap(one: dict[int, float], other: dict[int, float]) -> float:
    """Largest difference between two curves, over the steps of the second."""
    return max(abs(one[step] - loss) for step, loss in other.items())


@pytest.mark.slow
def test_the_losses_do_not_depend_on_how_the_model_is_divided(text: Path, tmp_path: Path, exhaustive: bool) -> None:
    divisions = list(DIVISIONS) if exhaustive else ["1", "data 2 x tensor 2"]
    steps = LONG if exhaustive else STEPS
    for name in divisions:
        train(text, tmp_path / name, **(OPTIONS | {"max_steps": steps} | DIVISIONS[name]))
    alone, first = curve(tmp_path / "1"), weights(tmp_path / "1")
    assert list(alone) == list(range(1, steps + 1))
    assert alone[steps] < alone[1] - steps / 25
    for name in divisions:
        assert gap(alone, curve(tmp_path / name)) < 1e-3, name
        assert furthest(first, weights(tmp_path / name)) < 1e-2, name
    told = json.loads((tmp_path / "data 2 x tensor 2" / "metrics" / "metrics.json").read_text())
    assert measured(text, tmp_path / "data 2 x tensor 2") == pytest.approx(told["validation_bits_per_byte"], rel=1e-4)
    assert {"tokens_per_second", "teraflops_per_rank", "memory_mb", "validation_perplexity"} <= set(told)


@pytest.mark.slow
def test_the_stages_of_a_pipeline_keep_documents_apart(text: Path, tmp_path: Path) -> None:
    data = shutil.copytree(text, tmp_path / "data")
    index = json.loads((data / "index.json").read_text())
    common = np.bincount(Dataset.open(text).split("train").take(np.arange(20))["x"].ravel()).argmax()
    index["text"] |= {"documents": "separate", "end_of_text": int(common)}  # so that rows have several documents
    (data / "index.json").write_text(json.dumps(index))
    options = OPTIONS | {"max_steps": 6, "precision": "fp64"}
    train(data, tmp_path / "one", **options)
    train(data, tmp_path / "two", **options, processes=2, pipeline_parallel=2)
    assert furthest(weights(tmp_path / "one"), weights(tmp_path / "two")) < 1e-12


def measured(text: Path, out: Path) -> float:
    """Bits per byte of the saved model on the validation split."""
    data = Dataset.open(text)
    predict, card = load_predictor(out / "model", torch.device("cpu"))
    assert (card.vocabulary, card.tokenizer, card.sequence_length) == (257, "bytes", 16)
    x = data.split("validation").take(np.arange(data.index.rows("validation")))["x"]
    objective = objective_of(data.index, split="validation")
    outputs, y = torch.from_numpy(predict(x[:, :-1])), torch.from_numpy(x[:, 1:].astype("int64"))
    return objective.metrics(objective.measure(outputs, y).tolist(), len(x))["bits_per_byte"]


@pytest.mark.slow
def test_a_killed_run_of_four_goes_on_on_two_and_on_one(text: Path, tmp_path: Path) -> None:
    train(text, tmp_path / "whole", **OPTIONS)
    often = OPTIONS | {"checkpoint_every": 1}
    kill_at(6, text, tmp_path / "four", victim=2, where="files", processes=4, **often)
    for name, division in {"one": {"processes": 1}, "two": {"processes": 2, "tensor_parallel": 2}}.items():
        shutil.copytree(tmp_path / "four" / "checkpoints", tmp_path / name / "checkpoints")
        results = train(text, tmp_path / name, **(OPTIONS | division))
        assert "continuing from" in results[0].stdout
        rest = curve(tmp_path / name)
        assert (min(rest), max(rest)) == (6, STEPS)
        assert gap(curve(tmp_path / "whole"), rest) < 1e-3
        kept = list((tmp_path / name / "checkpoints").glob("step-*"))
        assert len(kept) == 2
        assert all((path / "manifest.json").is_file() for path in kept)


@pytest.mark.slow
def test_what_saves_memory_does_not_change_the_result(text: Path, tmp_path: Path) -> None:
    options = OPTIONS | {"max_steps": 12, "precision": "fp64", "key_value_heads": 2, "tie_embeddings": "true"}
    train(text, tmp_path / "plain", **(options | {"accumulation_steps": 1}))
    spared = {"gradient_checkpointing": "true", "reshard_after_forward": "false"}
    train(text, tmp_path / "spared", processes=2, **(options | spared))
    check_times(tmp_path / "spared" / "metrics")
    assert furthest(weights(tmp_path / "plain"), weights(tmp_path / "spared")) < 1e-9
    assert gap(curve(tmp_path / "plain"), curve(tmp_path / "spared")) < 1e-9
    drawn = [generators(tmp_path / name) for name in ("plain", "spared")]
    assert drawn[0] == drawn[1], "what draws while it trains is seeded as well"


@pytest.mark.slow
@pytest.mark.exhaustive
def test_bf16_learns_through_all_three_kinds_of_parallelism(text: Path, tmp_path: Path) -> None:
    options = OPTIONS | {
        "max_steps": LONG,
        "precision": "bf16",
        "tensor_parallel": 2,
        "pipeline_parallel": 2,
        "pipeline_schedule": "gpipe",
    }
    train(text, tmp_path, processes=4, **options)
    losses = curve(tmp_path)
    assert losses[LONG] < losses[1] - 2
    assert {tensor.dtype for tensor in weights(tmp_path).values()} == {torch.float32}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "options", "words"),
    [
        (
            3,
            {"tensor_parallel": 2, "layers": 3, "pipeline_parallel": 2, "heads": 3},
            (
                "data_parallel(1) x tensor_parallel(2) x pipeline_parallel(2) = 4 ranks wanted, 3 are there",
                "heads 3 does not divide by tensor_parallel(2)",
                "layers 3 does not divide by pipeline_parallel(2)",
                "accumulation_steps(1) < pipeline_parallel(2)",
            ),
        ),
        (
            2,
            {"tensor_parallel": 2, "key_value_heads": 1, "tie_embeddings": "true"},
            ("key_value_heads 1 does not divide by tensor_parallel(2)", "tie_embeddings true needs"),
        ),
        (1, {"context_length": 8}, ("sequences of 16 tokens are longer than the model's context of 8",)),
        (1, {"width": 30}, ("width 30 does not divide into 4 heads",)),
        (1, {"batch_size": 3, "accumulation_steps": 2}, ("nearest: 2 or 4",)),
    ],
)
def test_a_wrong_use_is_one_clear_message(
    processes: int, options: dict[str, Any], words: tuple[str, ...], text: Path, tmp_path: Path
) -> None:
    done = run_component("train_fsdp", *arguments(text, tmp_path, **options), folder=tmp_path, processes=processes)
    assert set(done.codes) == {2}
    assert "Traceback" not in done.output
    for word in words:
        assert done.output.count(word) == 1, done.output
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_and_another_model_refused(text: Path, tmp_path: Path) -> None:
    options = OPTIONS | {"max_steps": 4, "checkpoint_every": 2}
    train(text, tmp_path, **options)
    newest, before = sorted((tmp_path / "checkpoints").glob("step-*"), reverse=True)
    (shard,) = newest.glob("rank-00000-*.safetensors")
    bytes_of = bytearray(shard.read_bytes())
    bytes_of[-5] ^= 1
    shard.write_bytes(bytes_of)
    result = train(text, tmp_path, **options)[0]
    assert f"{newest} is passed over: the sha256 of {shard.name} differs" in result.stderr
    assert f"continuing from {before}: step 2" in result.stdout

    done = run_component("train_fsdp", *arguments(text, tmp_path, width=64, batch_size=16), folder=tmp_path)
    assert done.codes == (2,)
    assert "belongs to another training" in done.output
    assert "width was 32 and is now 64" in done.output
