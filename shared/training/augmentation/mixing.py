"""Mixup and cutmix of a global batch: neighbours in its random order are pairs, so no picture is read twice.

Two neighbours are mixed with each other, each keeping the same share of itself. A rank needs no row of another one's,
unless the ranks have an odd number of rows each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.settings.augmentation import AugmentationSettings
from shared.training.augmentation.pixels import Pictures

FloatArray = npt.NDArray[np.floating[Any]]

_PAIRS_TAG = 0x6D6978
"""Keeps the numbers of pairs apart from those of the rows' order, which come from (seed, epoch) too."""


@dataclass(frozen=True, slots=True)
class PairPlan:
    """What is done to each place of a global batch of N; the same to both rows of a pair.

    Attributes:
        partner: place of the row that it is mixed with; its own for the last one of an odd batch.
        share: part of the label that stays its own, float32; 1 where nothing is mixed.
        boxes: (N, 4) top, bottom, left, right of what comes from the partner; all 0 for mixup.
    """

    partner: npt.NDArray[np.int64]
    share: npt.NDArray[np.float32]
    boxes: npt.NDArray[np.int64]

    def part(self, start: int, stop: int) -> PairPlan:
        """Give the plan of some places; their partners are counted from `start`."""
        return PairPlan(self.partner[start:stop] - start, self.share[start:stop], self.boxes[start:stop])


def plan_pairs(
    settings: AugmentationSettings, key: tuple[int, int, int], rows: int, height: int, width: int
) -> PairPlan:
    """Draw what is mixed in a global batch of so many rows; `key` is (seed, epoch, number of the batch in it)."""
    random, pairs = np.random.default_rng((*key, _PAIRS_TAG)), rows // 2
    kinds, centres = random.random(pairs), random.random((pairs, 2))
    by_box = (kinds < 0.5) if settings.mixup and settings.cutmix else np.full(pairs, settings.cutmix > 0)
    mixed, cut = (
        random.beta(alpha, alpha, pairs) if alpha else np.ones(pairs) for alpha in (settings.mixup, settings.cutmix)
    )
    half = np.sqrt(1 - cut)[:, None] * (height, width) / 2
    middle = centres * (height, width)
    low = np.rint(middle - half).clip(0).astype(np.int64)
    high = np.minimum(np.rint(middle + half), (height, width)).astype(np.int64)
    covered = (high - low).prod(1) / (height * width)  # a box at the edge is smaller than its share
    boxes = np.where(by_box[:, None], np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], 1), 0)
    own = np.where(by_box, 1 - covered, mixed).astype(np.float32)
    places = np.arange(rows)
    partner = np.minimum(places ^ 1, rows - 1)
    shares = np.ones(rows, np.float32)
    shares[: 2 * pairs] = own.repeat(2)
    every_box = np.zeros((rows, 4), np.int64)
    every_box[: 2 * pairs] = boxes.repeat(2, 0)
    return PairPlan(partner, shares, every_box)


def mix_pictures(pictures: Pictures, plan: PairPlan) -> Pictures:
    """Mix pictures with their partners, in float32; whole numbers are rounded again, so that the dtype stays."""
    mixed = pictures.copy()
    boxed = plan.boxes.any(1)
    for place in np.flatnonzero(boxed).tolist():
        top, bottom, left, right = plan.boxes[place].tolist()
        mixed[place, top:bottom, left:right] = pictures[plan.partner[place], top:bottom, left:right]
    blended = np.flatnonzero(~boxed & (plan.share < 1))
    if len(blended):
        wide = np.float64 if pictures.dtype == np.float64 else np.float32
        share: npt.NDArray[Any] = plan.share[blended].astype(wide)[:, None, None, None]
        found = _blend(pictures[blended].astype(wide), pictures[plan.partner[blended]].astype(wide), share)
        mixed[blended] = found if pictures.dtype.kind == "f" else np.rint(found)
    return mixed


def _blend(own: FloatArray, other: FloatArray, share: FloatArray) -> FloatArray:
    return other + share * (own - other)


def mix_labels(labels: npt.NDArray[Any], plan: PairPlan, classes: int) -> npt.NDArray[Any]:
    """Mix labels by their shares: (N, classes), float32, each row with a sum of 1; targets of a regression (N,)."""
    if not classes:
        targets = labels.astype(np.float64)
        return _blend(targets, targets[plan.partner], plan.share.astype(np.float64))
    places = np.arange(len(labels))
    shares = np.zeros((len(labels), classes), np.float32)
    np.add.at(shares, (places, labels), plan.share)
    np.add.at(shares, (places, labels[plan.partner]), 1 - plan.share)
    return shares
