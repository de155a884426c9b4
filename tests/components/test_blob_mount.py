"""Every trainer with its checkpoints, model and metrics on a mount as awkward as a blob store, killed and started again.

A long version: ``ALLRANKS_TEST_KILLS=20 pytest --exhaustive tests/components/test_blob_mount.py``.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from shared.checkpoint.reading import load_checkpoint, newest_valid_checkpoint
from tests.blob_mount import WORST, BlobFaults, blob_mount, can_mount
from tests.components.launched import Options, kill_in_training, last_step, run_launched
from tests.components.support import run_component
from tests.components.training import train, write_digits
from tests.shared.samples import write_language_dataset, write_text_classification_dataset

pytestmark = [
    pytest.mark.skipif(not can_mount(), reason="mounting with FUSE needs root and /dev/fuse"),
    pytest.mark.slow,
    pytest.mark.timeout(2400),
]

KILLS = int(os.environ.get("ALLRANKS_TEST_KILLS", "1"))
EVERY = 2
"""Steps between two checkpoints."""
TINY = {"model_type": "bert", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 32}  # fmt: skip
EPOCHS = {"train_fsdp": 1}
"""Of about eight steps each, where it is not two."""
SAME_BITS = {
    "train_torchrun": "train_ddp",
    "train_lightning": "train_ddp",
    "train_horovod": "train_ddp",
    "train_horovod_keras": "train_tf_multiworker",
}
"""On two ranks these end with the weights of another trainer, whose uninterrupted run is theirs too."""


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"), rows=200)


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory: pytest.TempPathFactory) -> WholeRuns:
    return WholeRuns(tmp_path_factory.mktemp("whole"))


class WholeRuns:
    """What uninterrupted trainings end with; each is made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._weights: dict[str, dict[str, bytes]] = {}

    def weights(self, trainer: str, data: Path, options: Options) -> dict[str, bytes]:
        """The weights of a trainer that is not disturbed, on a disk."""
        trainer = SAME_BITS.get(trainer, trainer)
        if trainer not in self._weights:
            run_launched(trainer, data, self._folder / trainer, options)
            self._weights[trainer] = weights(self._folder / trainer)
        return self._weights[trainer]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    with blob_mount(tmp_path / "blob", WORST) as place:
        yield place


def weights(out: Path) -> dict[str, bytes]:
    (path,) = (out / "model").rglob("*.safetensors")
    return {name: tensor.tobytes() for name, tensor in load_file(path).items()}


def train_with_kills(trainer: str, data: Path, mount: Path, options: Options) -> Path:
    """Train on the mount with kills at random moments, every second one within a save; the output behind the mount.

    Each start goes on from the newest checkpoint that is whole, and no more is lost than the save that was under way.
    """
    behind, draw, killed = mount.parent / "behind" / "out", random.Random(trainer), 0
    checkpoints = behind / "checkpoints"
    for number in range(KILLS):
        whole = newest_valid_checkpoint(checkpoints)
        longest = 0.1 if (number + len(trainer)) % 2 else 0.6  # of a single kill too: within a save for half of them
        running, printed = kill_in_training(trainer, data, mount / "out", options, checkpoints, draw, longest)
        assert whole is None or f"step {int(whole.name[5:])}, epoch" in printed
        killed += running
        whole = newest_valid_checkpoint(checkpoints)
        assert last_step(checkpoints) - (int(whole.name[5:]) if whole else 0) <= EVERY
    print(f"killed {killed} of {KILLS} times before the end")
    assert killed >= KILLS / 2
    results = run_launched(trainer, data, mount / "out", options)
    assert whole is None or f"step {int(whole.name[5:])}, epoch" in results[0].stdout
    return behind


def arranged(trainer: str, digits: Path, folder: Path) -> tuple[Path, Options]:
    """A dataset and options of a training that saves at least twice between two kills."""
    epochs = EPOCHS.get(trainer, 2) * max(1, KILLS * 3 // 4)
    options: dict[str, object] = {"checkpoint_every": EVERY, "log_every": EVERY, "batch_size": 16, "epochs": epochs}
    if trainer == "train_transformers":
        return write_text_classification_dataset(folder / "passages"), options | of_transformers(folder)
    if trainer == "train_fsdp":
        text = write_language_dataset(folder / "text", rows=(170, 13, 8))
        return text, options | {"layers": 2, "width": 32, "heads": 4}
    return digits, options


def of_transformers(folder: Path, **config: float) -> Options:
    """Options of a small model of which each rank has a part."""
    (folder / "tiny").mkdir()
    (folder / "tiny" / "config.json").write_text(json.dumps(TINY | config))
    return {"batch_size": 12, "base_config": folder / "tiny", "sharding": "fsdp"}


@pytest.mark.parametrize(
    "trainer",
    [
        "train_ddp",
        "train_fsdp",
        *(
            pytest.param(f"train_{name}", marks=pytest.mark.exhaustive)
            for name in (
                "torchrun",
                "deepspeed",
                "lightning",
                "transformers",
                "horovod",
                "horovod_keras",
                "tf_multiworker",
            )
        ),
    ],
)
def test_killed_at_random_moments_it_ends_with_the_same_bits(
    trainer: str, digits: Path, mount: Path, whole_runs: WholeRuns, tmp_path: Path
) -> None:
    data, options = arranged(trainer, digits, tmp_path)
    behind = train_with_kills(trainer, data, mount, options)
    assert weights(behind) == whole_runs.weights(trainer, data, options)
    assert json.loads((behind / "metrics" / "metrics.json").read_text())["history"]


@pytest.mark.exhaustive
def test_parameter_server_goes_on_from_whole_steps_and_counts_each_once(
    digits: Path, mount: Path, tmp_path: Path
) -> None:
    """Its steps overlap, so that two runs differ in their bits; what is saved is a number of whole steps."""
    trainer = "train_tf_parameter_server"
    data, options = arranged(trainer, digits, tmp_path)
    behind = train_with_kills(trainer, data, mount, options)
    numbers = json.loads((behind / "metrics" / "metrics.json").read_text())
    steps = int(str(options["epochs"])) * (140 // 16)
    assert numbers["steps"] == steps
    assert [entry["epoch"] for entry in numbers["history"]] == [
        1 + epoch for epoch in range(int(str(options["epochs"])))
    ]
    newest = newest_valid_checkpoint(behind / "checkpoints")
    tensors, state = load_checkpoint(newest)
    assert (state["position"]["step"], int(tensors["optimizer.0"])) == (steps, steps)


def test_whoever_lists_a_folder_of_the_mount_tries_again(tmp_path: Path) -> None:
    """What lists without a second try, as transformers did at the end of its training, ends the run here."""
    data = write_text_classification_dataset(tmp_path / "passages")
    options: dict[str, Any] = {"script": "train_transformers", "epochs": 1, "checkpoint_every": 2}
    with blob_mount(tmp_path / "blob", BlobFaults(listings=True, lag=0.5)) as mount:
        train(data, mount / "out", **of_transformers(tmp_path), **options)
        behind, report = mount.parent / "behind", ("--report", mount / "report")
        model = behind / "out" / "model"
        done = run_component("evaluate", "--data", data, "--model", model, *report, folder=tmp_path, processes=2)
    assert done.codes == (0, 0), done.output
    assert newest_valid_checkpoint(behind / "out" / "checkpoints")
    written = {path.name for path in (behind / "report").iterdir()}
    assert {"index.html", "metrics.json", "predictions.csv"} <= written
    assert not [path for path in (behind / "report").iterdir() if path.is_dir()]  # the outputs of the ranks have gone
