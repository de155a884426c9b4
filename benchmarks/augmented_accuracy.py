"""What random changes of the training pictures are worth: train_ddp with and without them, at equal steps.

    python benchmarks/augmented_accuracy.py

Both ways have the same rows, model, first weights, optimizer and number of steps, three seeds each; the validation
pictures are as they are. Two datasets: scikit-learn's digits, of which 200 train, with the library's mlp; and 32 x 32
colour pictures of ten kinds of shapes, drawn here in random colours, places, sizes and angles with noise, of which
1,000 train, with a small convolutional network. The accuracy is that after the last step, not the best one.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import runpy
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from side_by_side import keep

from shared.data import Array, Index, Statistics
from shared.data.write import write_index, write_shard

ROOT = Path(__file__).parents[1]
SEEDS = (0, 1, 2)
SHAPES = 10

SMALL_NET = """
from torch import nn

def build(shape, outputs):
    layers, inputs = [], shape[0]
    for width in (24, 48, 96):
        layers += [nn.Conv2d(inputs, width, 3, stride=2, padding=1), nn.GroupNorm(8, width), nn.GELU()]
        inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, outputs))
"""

Rows = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def main() -> None:
    """Train, and keep the accuracies."""
    table = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "net.py").write_text(SMALL_NET)
        digits = write_dataset(folder / "digits", digit_rows(200), digit_rows(-1000))
        drawn = write_dataset(folder / "drawn", drawn_rows(1000, seed=1), drawn_rows(2000, seed=2))
        of_net = {"architecture": "net.py:build", "model_code": folder}
        common: dict[str, object] = {"batch_size": 50, "learning_rate": 0.003, "log_every": 1000}
        experiments: list[tuple[str, Path, dict[str, object], dict[str, object]]] = [
            ("digits", digits, common | {"epochs": 200}, {"crop_padding": 1, "mixup": 0.2}),
            (
                "drawn shapes",
                drawn,
                common | of_net | {"epochs": 60},
                {"crop_padding": 4, "horizontal_flip": 0.5, "color_jitter": 0.4},
            ),
        ]
        for title, data, options, changes in experiments:
            plain = [accuracy(folder, data, {**options, "seed": seed}) for seed in SEEDS]
            changed = [accuracy(folder, data, {**options, **changes, "seed": seed}) for seed in SEEDS]
            table.append({"data": title, "changes": changes, "plain": plain, "changed": changed})
            print(f"{title}: plain {shown(plain)}, changed {shown(changed)}", flush=True)
    keep("augmented_accuracy", [], accuracies=table)


def shown(values: list[float]) -> str:
    """Mean and range."""
    return f"{statistics.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"


def accuracy(folder: Path, data: Path, options: Mapping[str, object]) -> float:
    """Train in this process, as one rank, and give the accuracy on the validation split after the last step."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        ports = {"data": data, **{name: Path(out, name) for name in ("model", "checkpoints", "metrics")}}
        words = [
            word for name, value in {**ports, **options}.items() for word in (f"--{name.replace('_', '-')}", str(value))
        ]
        script = ROOT / "components" / "train_ddp" / "train_ddp.py"
        before = Path.cwd()
        os.chdir(out)
        sys.argv = [str(script), *words]
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
                runpy.run_path(str(script), run_name="__main__")
        finally:
            os.chdir(before)
        found: float = json.loads(Path(out, "metrics", "metrics.json").read_text())["validation_accuracy"]
    return round(found, 4)


def digit_rows(count: int) -> Rows:
    """The first rows of a shuffled order, or with a negative count the last ones."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    chosen = order[:count] if count > 0 else order[count:]
    return digits.images[chosen].astype(np.uint8)[..., None], digits.target[chosen].astype(np.int64)


def drawn_rows(count: int, seed: int) -> Rows:
    """Pictures of ten kinds of shapes: polygons of 3 to 6 corners, stars of 3 to 6 points, a disc and a ring."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % SHAPES
    return np.stack([drawn(int(label), random) for label in labels]), labels.astype(np.int64)


def drawn(label: int, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """One picture, drawn four times as large and made smaller."""
    side = 128
    low, high = random.integers(0, 256, (2, 3))  # the colours of the background, above and below
    slope = np.linspace(0, 1, side)[:, None, None]
    image = Image.fromarray(np.broadcast_to(low + (high - low) * slope, (side, side, 3)).astype(np.uint8))
    radius, angle = random.uniform(36, 54), random.uniform(-0.4, 0.4)
    x, y = random.uniform(52, side - 52, 2)
    color = tuple((((low + high) // 2 + 128 + random.integers(-50, 50, 3)) % 256).tolist())
    pen = ImageDraw.Draw(image)
    if label >= 8:
        box = (x - radius, y - radius, x + radius, y + radius)
        pen.ellipse(box, fill=color if label == 8 else None, outline=color, width=14)
    else:
        corners = 3 + label % 4
        points = 2 * corners if label >= 4 else corners
        reach = [radius * (0.45 if label >= 4 and point % 2 else 1) for point in range(points)]
        turned = [angle + 2 * math.pi * point / points for point in range(points)]
        pen.polygon(
            [(x + r * math.cos(a), y + r * math.sin(a)) for r, a in zip(reach, turned, strict=True)], fill=color
        )
    small = np.asarray(image.resize((32, 32), Image.Resampling.BOX), np.float64)
    noisy: npt.NDArray[np.uint8] = (small + random.normal(0, 12, small.shape)).clip(0, 255).astype(np.uint8)
    return noisy


def write_dataset(folder: Path, train: Rows, validation: Rows) -> Path:
    """Write a prepared dataset of ten classes."""
    arrays = {"x": Array(train[0].shape[1:], "uint8"), "y": Array((), "int64")}
    shards: dict[str, tuple[Any, ...]] = {"test": ()}
    for split, (x, y) in (("train", train), ("validation", validation)):
        shards[split] = (write_shard(folder, split, 0, rows=len(x), arrays=arrays, chunks=[{"x": x, "y": y}]),)
    statistics_of = Statistics(tuple(train[0].mean((0, 1, 2)).tolist()), tuple(train[0].std((0, 1, 2)).tolist()))
    write_index(folder, Index("classification", arrays, tuple("0123456789"), statistics_of, shards))
    return folder


if __name__ == "__main__":
    main()
