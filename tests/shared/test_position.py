"""Positions that earlier versions have saved."""

from __future__ import annotations

import pytest

from shared.distributed import Refusal
from shared.training.core.position import TrainingPosition


def position(epoch: int, batch: int, *steps: int) -> TrainingPosition:
    return TrainingPosition(
        epoch, batch, steps[-1], history=[{"step": float(step), "train_loss": 2.0} for step in steps]
    )


def test_a_cut_epoch_that_was_counted_as_done_is_put_back() -> None:
    at = position(2, 0, 6, 10)
    at.restore_cut_epoch(steps_per_epoch=6)
    assert (at.epoch, at.batch, at.step, at.epoch_loss) == (1, 4, 10, 8.0)
    for right in (position(1, 4, 6, 10), position(2, 0, 6, 12), position(0, 6, 6)):
        before = (right.epoch, right.batch)
        right.restore_cut_epoch(steps_per_epoch=6)
        assert (right.epoch, right.batch) == before


def test_a_training_that_has_left_out_steps_is_not_gone_on_with() -> None:
    with pytest.raises(Refusal, match="left out the rest of an epoch"):
        position(2, 0, 4, 10).restore_cut_epoch(steps_per_epoch=6)
