"""How many pictures a core changes in a second: the trainers' augmentation against torchvision's v2, in turn.

    pip install torchvision
    python benchmarks/augmentation.py

Both get the same pictures in memory and make the same changes with the same settings: a batch of ours at a time, as the
reading threads do it, and picture by picture, as a torchvision Dataset does it, with uint8 tensors and with Pillow
images; torchvision's results are stacked to a batch. It draws from torch's generator, unseeded: to seed it for each
picture, as ours are, would take 110 microseconds more. The processor's time is measured, on one thread. Then what two
threads do, as `loader_workers` 2 has them: how much more than one in the same time of the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from side_by_side import in_turn, keep

from shared.settings.augmentation import AugmentationSettings
from shared.training.augmentation.batches import BatchAugmentation

Pictures = npt.NDArray[np.uint8]


def main() -> None:
    """Measure and keep."""
    torch.set_num_threads(1)
    compared, rates, threads = [], {}, {}
    for side, count in ((32, 512), (224, 48)):
        pictures = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), np.uint8)
        for name, settings in variants(side).items():
            ours = by_us(pictures, settings)
            for kind in ("tensors", "Pillow"):
                title = f"{count} pictures of {side} x {side}, {name}"
                theirs = by_torchvision(pictures, settings, kind)
                found = in_turn(
                    title,
                    ("train_ddp's", processor_time(ours)),
                    (f"torchvision on {kind}", processor_time(theirs)),
                    rounds=5,
                    limit="none",
                )
                compared.append(found)
                rates[f"{title}: ours"] = round(count / min(found.our_seconds))
                rates[f"{title}: torchvision on {kind}"] = round(count / min(found.their_seconds))
            threads[f"{side} x {side}, {name}"] = two_threads(ours)
    keep("augmentation", compared, pictures_per_second_of_a_core=rates, two_threads_do=threads)


def variants(side: int) -> dict[str, AugmentationSettings]:
    """What is usual for pictures of this size."""
    shape: dict[str, Any] = {"crop_padding": 4} if side == 32 else {"resized_crop": 0.08}
    return {
        "crop and flip": AugmentationSettings(**shape, horizontal_flip=0.5),
        "with colors": AugmentationSettings(**shape, horizontal_flip=0.5, color_jitter=0.4),
        "with RandAugment": AugmentationSettings(**shape, horizontal_flip=0.5, rand_augment=2),
    }


def by_us(pictures: Pictures, settings: AugmentationSettings) -> Callable[[], object]:
    """What changes all pictures, in another way at each call."""
    changes = BatchAugmentation(settings, 0, 10, np.full(3, 120, np.uint8))
    rows, epochs = np.arange(len(pictures)), iter(range(10**9))
    return lambda: changes.change(pictures, next(epochs), rows)


def by_torchvision(pictures: Pictures, settings: AugmentationSettings, kind: str) -> Callable[[], object]:
    """The same with torchvision."""
    from torchvision.transforms import v2

    side, jitter = pictures.shape[1], settings.color_jitter
    crop = v2.RandomCrop(side, settings.crop_padding, fill=120) if settings.crop_padding else None
    parts = [crop or v2.RandomResizedCrop(side, (settings.resized_crop, 1), antialias=True)]
    parts += [v2.RandomHorizontalFlip(settings.horizontal_flip)]
    parts += [v2.ColorJitter(jitter, jitter, jitter, jitter / 4)] if jitter else []
    parts += [v2.RandAugment(settings.rand_augment, settings.rand_augment_magnitude)] if settings.rand_augment else []
    if kind == "Pillow":
        changed = v2.Compose([*parts, v2.PILToTensor()])
        images = [Image.fromarray(picture) for picture in pictures]
        return lambda: torch.stack([changed(image) for image in images])
    on_tensors = v2.Compose(parts)
    tensors = [torch.from_numpy(picture).permute(2, 0, 1).contiguous() for picture in pictures]
    return lambda: torch.stack([on_tensors(tensor) for tensor in tensors])


def processor_time(work: Callable[[], object]) -> Callable[[], float]:
    """What does the work and gives the processor's seconds that it took."""

    def measure() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return measure


def two_threads(work: Callable[[], object]) -> float:
    """How much more two threads do than one in the same time: the best of five pairs, on a machine with other work."""
    ratios = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            taken = []
            for runs in (1, 2):
                start = time.perf_counter()
                list(pool.map(lambda _: [work() for _ in range(4)], range(runs)))
                taken.append(time.perf_counter() - start)
            ratios.append(2 * taken[0] / taken[1])
    return round(max(ratios), 2)


if __name__ == "__main__":
    main()
