"""Random changes of pictures: what they leave alone, that they are the same everywhere, and that models train on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.data import Array, Dataset, Index, Statistics
from shared.distributed import Refusal
from shared.settings.augmentation import AugmentationSettings
from shared.settings.command_line import read_settings
from shared.settings.fields import idle_notes
from shared.settings.running import LoaderSettings
from shared.settings.trainer import RowsTrainerSettings
from shared.settings.training import LoopSettings
from shared.training.augmentation.batches import BatchAugmentation, plan_augmentation
from shared.training.augmentation.draws import DrawStream, draw_uniform
from shared.training.augmentation.mixing import mix_labels, mix_pictures, plan_pairs
from shared.training.augmentation.pixels import (
    crop_pictures,
    erase_rectangles,
    jitter_color,
    rand_augment,
    shift_pictures,
    to_image,
)
from shared.training.core.batch_plan import BatchPlan
from shared.training.torch.feed import BatchFeed, RowReader
from shared.training.torch.objective import ClassificationObjective
from tests.components.training import bit_equal, furthest, train, train_in_turn, weights, write_digits

ALL = AugmentationSettings(
    crop_padding=2,
    resized_crop=0.4,
    horizontal_flip=0.5,
    color_jitter=0.4,
    rand_augment=2,
    random_erasing=0.5,
    mixup=0.4,
    cutmix=1.0,
)
GREY = np.array([99, 120, 130], np.uint8)
KINDS = {
    "crop_padding": 3, "resized_crop": 0.3, "horizontal_flip": 0.5, "color_jitter": 0.5, "rand_augment": 2,
    "random_erasing": 0.5,
}  # fmt: skip


def paint(count: int = 12, side: int = 16, channels: int = 3, dtype: str = "uint8") -> npt.NDArray[Any]:
    return np.random.default_rng(1).integers(0, 256, (count, side, side, channels)).astype(dtype)


def augmentation(given: AugmentationSettings, seed: int = 0, classes: int = 10) -> BatchAugmentation:
    return BatchAugmentation(given, seed, classes, GREY)


def test_draws_are_even_and_none_depends_on_another() -> None:
    rows = np.arange(4000)
    drawn = np.stack([draw_uniform(3, epoch, rows, stream, 4) for epoch in range(3) for stream in DrawStream])
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = np.stack([np.histogram(one, 16, (0, 1))[0] for one in drawn.transpose(0, 2, 1).reshape(-1, len(rows))])
    chi_squares = ((counts - len(rows) / 16) ** 2 / (len(rows) / 16)).sum(1)
    assert chi_squares.max() < 50  # of 15 degrees of freedom: 1 in 100,000
    related = np.corrcoef(drawn.transpose(0, 2, 1).reshape(-1, len(rows))) - np.eye(drawn.shape[0] * 4)
    assert abs(related).max() < 0.1
    assert (draw_uniform(4, 0, rows, DrawStream.FLIP, 4) != drawn[DrawStream.FLIP]).all()


@given(st.integers(0, 2**32 - 1), st.integers(0, 10**6), st.permutations(range(9)))
def test_a_row_draws_the_same_in_whatever_batch_it_is(seed: int, epoch: int, order: list[int]) -> None:
    rows = np.array(order)
    alone = np.concatenate([draw_uniform(seed, epoch, rows[[n]], DrawStream.COLOR, 3) for n in range(len(rows))])
    assert (draw_uniform(seed, epoch, rows, DrawStream.COLOR, 3) == alone).all()


@given(st.integers(0, 99), st.integers(0, 9))
@settings(max_examples=20)
def test_no_strength_is_no_change(seed: int, epoch: int) -> None:
    x, rows = paint(), np.arange(12)
    assert (augmentation(AugmentationSettings(), seed).change(x, epoch, rows) == x).all()
    draws = draw_uniform(seed, epoch, rows, DrawStream.COLOR, 5)
    assert (shift_pictures(x, draws[:, :2], 0, GREY) == x).all()
    assert (crop_pictures(x, np.tile([1, 0.5, 0, 0], (12, 1)), 1.0) == x).all()
    assert (erase_rectangles(x, draws, 0, GREY) == x).all()
    for picture, draw in zip(x, draws, strict=True):
        for channels in (1, 3):
            image = to_image(picture[..., :channels])
            assert (np.asarray(jitter_color(image, draw[:4], 0.0)) == np.asarray(image)).all()
    plan = plan_pairs(AugmentationSettings(), (seed, epoch, 0), 12, 16, 16)
    assert (mix_pictures(x, plan) == x).all()


@pytest.mark.parametrize("operation", [n for n in range(14) if n not in (1, 2)])
def test_rand_augment_without_magnitude_is_no_change(operation: int) -> None:
    """But for autocontrast and equalize, which have none."""
    for channels in (1, 3):
        image = to_image(paint(1, channels=channels)[0])
        for direction in (0.0, 0.9):
            draws = np.array([(operation + 0.5) / 14, direction])
            changed = rand_augment(image, draws, 0, tuple(range(channels)))
            assert (np.asarray(changed) == np.asarray(image)).all()


@pytest.mark.parametrize("name", KINDS)
def test_each_change_changes_and_leaves_the_draws_of_the_others(name: str) -> None:
    x, rows = paint(), np.arange(12)
    changed = augmentation(AugmentationSettings(**{name: KINDS[name]})).change(x, 0, rows)  # type: ignore[arg-type]
    assert changed.dtype == x.dtype
    assert changed.shape == x.shape
    assert (changed != x).any()
    assert (augmentation(AugmentationSettings(**{name: KINDS[name]})).change(x, 1, rows) != changed).any()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("channels", "dtype"), [(1, "uint8"), (2, "uint8"), (3, "float32"), (1, "int16"), (5, "float64")]
)
def test_shapes_change_in_pictures_of_any_type(channels: int, dtype: str) -> None:
    given = replace(ALL, color_jitter=0.0, rand_augment=0)
    x, fill = paint(channels=channels, dtype=dtype), np.full(channels, 7, dtype)
    changed = replace(augmentation(given), fill=fill).change(x, 0, np.arange(12))
    plan = plan_pairs(given, (0, 0, 0), 12, 16, 16)
    mixed = mix_pictures(changed, plan)
    assert mixed.dtype == x.dtype
    assert mixed.shape == x.shape
    assert 0 <= mixed.min() <= mixed.max() <= 255


def test_a_crop_has_at_least_its_share_of_the_area_and_its_aspect() -> None:
    from shared.training.augmentation.pixels import crop_box

    for draws in draw_uniform(0, 0, np.arange(500), DrawStream.RESIZED_CROP, 4):
        left, top, right, bottom = crop_box(draws, 100, 200, 0.25)
        assert 0 <= left < right <= 200
        assert 0 <= top < bottom <= 100
        share, aspect = (right - left) * (bottom - top) / 20000, (right - left) / 200 / (bottom - top) * 100
        assert 0.25 - 1e-9 <= share <= 1 or aspect in (pytest.approx(3 / 4), pytest.approx(4 / 3))
        assert 3 / 4 - 1e-9 <= aspect <= 4 / 3 + 1e-9


@given(st.integers(2, 41), st.sampled_from([(0.4, 0.0), (0.0, 1.0), (0.3, 0.7)]), st.integers(0, 5))
def test_the_mass_of_mixed_labels_is_1_and_follows_the_pixels(
    rows: int, alphas: tuple[float, float], batch: int
) -> None:
    plan = plan_pairs(AugmentationSettings(mixup=alphas[0], cutmix=alphas[1]), (1, 2, batch), rows, 8, 8)
    labels = np.arange(rows) % 7
    shares = mix_labels(labels, plan, 7)
    assert shares.sum(1) == pytest.approx(np.ones(rows), abs=1e-6)
    assert (shares >= 0).all()
    assert (plan.partner[plan.partner] == np.arange(rows)).all()
    assert plan.share[-1] == 1 or rows % 2 == 0
    # Each picture is full of its own number: the mean of a mixed one is that of the labels.
    x = np.tile(np.arange(rows, dtype=np.float64)[:, None, None, None], (1, 8, 8, 1))
    targets = mix_labels(np.arange(rows, dtype=np.float64), plan, 0)
    assert mix_pictures(x, plan).mean((1, 2, 3)) == pytest.approx(targets, abs=1e-5)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"), rows=400, encoded=True)


@pytest.mark.parametrize("batch_size", [24, 12, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_the_same_global_batch_on_any_number_of_ranks(digits: Path, batch_size: int) -> None:
    """Of 12 on 4 ranks each has 3 rows, so that pairs lie on two ranks."""
    data = Dataset.open(digits)
    changes = plan_augmentation(ALL, data.index, seed=5)
    reader = RowReader(data.split("train"), torch.device("cpu"), LoaderSettings())

    def epoch(rank: int, ranks: int, start: int = 0, workers: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
        loader = LoaderSettings(loader_workers=workers)
        plan = BatchPlan(batch_size, ranks, 1)
        return list(BatchFeed(reader, plan, rank, LoopSettings(), loader, 5, changes).epoch(3, start))  # type: ignore[arg-type]

    alone = epoch(0, 1)
    assert alone[0][0].shape == (batch_size, 8, 8, 1)
    assert alone[0][0].dtype == torch.uint8
    assert not torch.equal(alone[0][0], epoch(0, 1, 1)[0][0])
    for ranks, start in ((2, 0), (4, 3), (1, 2)):
        parts = [epoch(rank, ranks, start, workers=int(ranks == 2 and rank == 1)) for rank in range(ranks)]
        for number, batch in enumerate(alone[start:]):
            for of_whole, *of_ranks in zip(batch, *(part[number] for part in parts), strict=True):
                assert torch.equal(of_whole, torch.cat(of_ranks))


def test_mixed_labels_cost_what_their_classes_cost() -> None:
    outputs, labels = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 4
    for smoothing in (0.0, 0.1):
        objective = ClassificationObjective(smoothing)
        hard = objective.loss(outputs, labels)
        assert objective.loss(outputs, torch.nn.functional.one_hot(labels, 4).float()).item() == pytest.approx(
            hard.item()
        )
        other = objective.loss(outputs, (labels + 1) % 4)
        shares = 0.3 * torch.nn.functional.one_hot(labels, 4) + 0.7 * torch.nn.functional.one_hot((labels + 1) % 4, 4)
        assert objective.loss(outputs.double(), shares).item() == pytest.approx(0.3 * hard.item() + 0.7 * other.item())


def index_of(shape: tuple[int, ...], dtype: str) -> Index:
    arrays = {"x": Array(shape, dtype), "y": Array((), "int64")}
    return Index("classification", arrays, ("a", "b"), Statistics((1.6,) * shape[-1], (1.0,) * shape[-1]), {})


def test_what_a_dataset_cannot_have_is_refused_and_the_rest_is_done() -> None:
    with pytest.raises(Refusal, match=r"uint8 with 1 or 3 channels; the rows are float32 of shape \(8, 8, 3\)"):
        plan_augmentation(AugmentationSettings(color_jitter=0.1), index_of((8, 8, 3), "float32"), 0)
    with pytest.raises(Refusal, match=r"Set both to 0"):
        plan_augmentation(AugmentationSettings(rand_augment=1), index_of((8, 8, 4), "uint8"), 0)
    assert plan_augmentation(ALL, index_of((8,), "float32"), 0) is None
    assert plan_augmentation(AugmentationSettings(), index_of((8, 8, 3), "uint8"), 0) is None
    found = plan_augmentation(AugmentationSettings(crop_padding=1), index_of((8, 8, 3), "uint8"), 0)
    assert found is not None
    assert found.fill.tolist() == [2, 2, 2]


WORDS = {
    "architecture": "mlp", "epochs": 2, "batch_size": 60, "precision": "fp64", "schedule": "constant",
    "warmup_fraction": 0, "crop_padding": 1, "resized_crop": 0.7, "color_jitter": 0.2, "rand_augment": 1,
    "random_erasing": 0.2, "mixup": 0.4, "cutmix": 1, "horizontal_flip": 0.1, "read": "streaming",
}  # fmt: skip


@pytest.mark.slow
def test_a_training_on_changed_pictures_resumes_to_the_bit_and_is_the_same_on_two_ranks(
    digits: Path, tmp_path: Path
) -> None:
    runs = [
        (tmp_path / "whole", {}),
        (tmp_path / "begun", {"epochs": 1}),
        (tmp_path / "resumed", {"resume_from": tmp_path / "begun" / "checkpoints"}),
        (
            tmp_path / "plain",
            dict.fromkeys(("crop_padding", "color_jitter", "rand_augment", "random_erasing", "mixup"), 0),
        ),
    ]
    train_in_turn(digits, runs, **WORDS)
    whole = weights(tmp_path / "whole")
    assert bit_equal(whole, weights(tmp_path / "resumed"))
    assert furthest(whole, weights(tmp_path / "plain")) > 1e-3
    train(digits, tmp_path / "two", processes=2, **WORDS)
    assert furthest(whole, weights(tmp_path / "two")) < 1e-9


def test_a_table_is_told_that_it_has_no_pictures() -> None:
    words = ["--data", "d", "--model", "m", "--checkpoints", "c", "--metrics", "x", "--mixup", "0.2"]
    given = read_settings(RowsTrainerSettings, words=[*words, "--rand-augment-magnitude", "3"])

    def notes(*, has_pictures: bool) -> list[str]:
        return list(idle_notes(given, is_text=False, has_pictures=has_pictures, world_size=1))

    assert notes(has_pictures=False) == [
        "rand_augment_magnitude has no effect here: the rows are no pictures",
        "mixup has no effect here: the rows are no pictures",
    ]
    assert notes(has_pictures=True) == ["rand_augment_magnitude has no effect here: rand_augment is 0"]
