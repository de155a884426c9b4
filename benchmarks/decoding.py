"""Pictures decoded for a training: train_ddp's feed over encoded shards, against torch's DataLoader over the files.

    python benchmarks/decoding.py

2,048 JPEG files of 500 x 375 pixels, as they are usual in ImageNet, become batches of 64 pictures of 224 x 224, scaled
and cropped, as bytes. Ours has as many threads as theirs has worker processes. Both decode by Pillow with the same
filter and draw their own order in each epoch. The files are in the page cache, so an epoch measures decoding and
collation. The two are timed in turn.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from itertools import count
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from side_by_side import in_turn, keep

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from shared.data import Dataset  # noqa: E402
from shared.settings.augmentation import AugmentationSettings  # noqa: E402
from shared.settings.running import LoaderSettings  # noqa: E402
from shared.settings.training import LoopSettings  # noqa: E402
from shared.training.augmentation.batches import plan_augmentation  # noqa: E402
from shared.training.core.batch_plan import BatchPlan  # noqa: E402
from shared.training.torch.feed import BatchFeed, RowReader  # noqa: E402

PICTURES, BATCH, SIDE = 2048, 64, 224
EPOCHS = count()


def main() -> None:
    """Measure and keep."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        files = write_files(Path(name) / "files")
        prepared = prepare(Path(name))
        compared = [
            in_turn(
                f"an epoch of {PICTURES:,} pictures, {workers} workers",
                ("train_ddp's feed", ours(prepared, workers)),
                ("DataLoader", theirs(files, workers)),
                rounds=5,
                limit="1.11: 0.9 of the throughput",
            )
            for workers in (2, 4)
        ]
    rates = {one.name: round(PICTURES / min(one.our_seconds)) for one in compared}
    keep("decoding", compared, pictures_per_second=rates)


def write_files(folder: Path) -> list[Path]:
    """Write the pictures: shapes of many sizes, and a little noise, so that a file has some 100 kB as a photograph."""
    random, contents, files = np.random.default_rng(0), [], []
    for _ in range(64):
        picture = np.zeros((375, 500, 3))
        for size in (4, 16, 64):
            coarse = Image.fromarray(random.integers(0, 256, (size, size, 3), np.uint8))
            picture += np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC)) / 3
        picture += random.normal(0, 12, picture.shape)
        buffer = BytesIO()
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
        contents.append(buffer.getvalue())
    for number in range(PICTURES):
        file = folder / "ab"[number % 2] / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(contents[number % len(contents)])
        files.append(file)
    return files


def prepare(folder: Path) -> Path:
    """Let prepare_data keep the files in shards, all of them for training."""
    script = ROOT / "components" / "prepare_data" / "prepare_data.py"
    given = {"dataset": "image_folder", "data": folder / "files", "output-data": folder / "data", "image-size": SIDE}
    given |= {"image-storage": "encoded", "validation-fraction": 0, "test-fraction": 0}
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    subprocess.run([sys.executable, str(script), *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "data"


def ours(folder: Path, workers: int) -> Callable[[], float]:
    """The feed of one rank."""
    loader, data = LoaderSettings(loader_workers=workers), Dataset.open(folder)
    reader = RowReader(data.split("train"), torch.device("cpu"), loader)
    changes = plan_augmentation(AugmentationSettings(), data.index, 0)
    feed = BatchFeed(reader, BatchPlan(BATCH, 1, 1), 0, LoopSettings(epochs=10**6), loader, 0, changes)
    assert reader.held is None, "the pictures fit into memory and would be decoded once"
    return lambda: seconds_of(feed.epoch(next(EPOCHS)))


class Files(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Pictures as one writes it by hand."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.files[number]) as image:
            fitted = ImageOps.fit(image.convert("RGB"), (SIDE, SIDE), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(fitted)), number % 2


def theirs(files: list[Path], workers: int) -> Callable[[], float]:
    """A DataLoader with its own settings."""
    loader = torch.utils.data.DataLoader(
        Files(files), BATCH, shuffle=True, num_workers=workers, persistent_workers=True, drop_last=True
    )
    return lambda: seconds_of(loader)


def seconds_of(batches: object) -> float:
    """Seconds to take all batches."""
    start, taken = time.perf_counter(), 0
    for rows, _ in batches:  # type: ignore[attr-defined]
        taken += len(rows)
    assert taken == PICTURES, taken
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
