"""train_horovod: real MPI over emulated nodes, and the weights of train_ddp."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.components.frameworks import run_killed_trainer, run_trainer, weights_of
from tests.components.training import check_times, furthest, train, weights, write_digits

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]  # test_faults.py has one training in every run

SHORT = ("epochs=2", "batch_size=60")
"""Inputs of the trainings that several tests share or compare."""


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"), encoded=True)


@pytest.fixture(scope="module")
def whole(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What three ranks train without a kill: from three on, another order of the sum is other bits."""
    return run_trainer("train_horovod", digits, tmp_path_factory.mktemp("whole"), "3x1", *SHORT)


@pytest.mark.timeout(600)
def test_the_weights_are_those_of_ddp_on_any_number_of_ranks(
    whole: dict[str, object], digits: Path, tmp_path: Path
) -> None:
    train(digits, tmp_path / "alone", epochs=2, batch_size=60)
    expected = weights(tmp_path / "alone")
    check_times(Path(whole["outputs"]["metrics"]), ranks=3)
    assert furthest(expected, weights_of(whole)) < 1e-5
    others = (("train_horovod", "2x2"), ("train_ddp", "2x2"), ("train_torchrun", "2x2"), ("train_horovod", "4x1"))
    for component, shape in others:
        step = run_trainer(component, digits, tmp_path, shape, *SHORT)
        check_times(Path(step["outputs"]["metrics"]), ranks=4)
        assert furthest(expected, weights_of(step)) < 1e-5


def test_accumulated_passes_give_the_same_weights(digits: Path, tmp_path: Path) -> None:
    whole = run_trainer("train_horovod", digits, tmp_path, "1x2", "epochs=1")
    parts = run_trainer("train_horovod", digits, tmp_path, "1x2", "epochs=1", "accumulation_steps=4")
    check_times(Path(parts["outputs"]["metrics"]))
    assert furthest(weights_of(whole), weights_of(parts)) < 1e-5


@pytest.mark.timeout(600)
def test_a_killed_training_ends_with_the_same_bits(whole: dict[str, object], digits: Path, tmp_path: Path) -> None:
    values = (*SHORT, "checkpoint_every=7", "log_every=1")
    killed = run_killed_trainer("train_horovod", digits, tmp_path, "3x1", *values, step=17, rank=2)
    assert "continuing from" in killed["logs"]
    assert furthest(weights_of(whole), weights_of(killed)) == 0
