"""Preparing a folder of images against Pillow alone on as many processes: what do splitting, sums and hashes cost?

    python benchmarks/prepare_images.py

Both sides decode the same 20,000 PNG images of several sizes and modes, bring them to 64x64 pixels in RGB, and start
their own processes. prepare_data also lists and splits them, sums them up, writes the shards and hashes them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from side_by_side import in_turn, keep, seconds

ROOT = Path(__file__).parents[1]
COUNT = 20_000
SIDE = 64

# Each process takes 256 files at a time, and keeps the pixels that it decoded last.
BARE = """
import os, sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
import numpy as np
from PIL import Image, ImageOps

def decode(file):
    with Image.open(file) as image:
        return np.asarray(ImageOps.fit(image.convert("RGB"), (64, 64), Image.Resampling.BILINEAR)).shape

if __name__ == "__main__":
    files = sorted(Path(sys.argv[1]).rglob("*.png"))
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        print(sum(shape == (64, 64, 3) for shape in pool.map(decode, files, chunksize=256)))
"""


def main() -> None:
    """Measure and keep."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paint(folder / "images")
        (folder / "bare.py").write_text(BARE)
        script = ROOT / "components" / "prepare_data" / "prepare_data.py"
        arguments = ["--dataset", "image_folder", "--data", "images", "--image-size", str(SIDE)]
        ours = [sys.executable, str(script), *arguments, "--output-data", "out"]
        compared = in_turn(
            f"{COUNT:,} images",
            ("prepare_data", lambda: timed(ours, folder)),
            ("Pillow alone", lambda: timed([sys.executable, "bare.py", "images"], folder)),
            rounds=5,
            limit="1.43: 0.7 of the decoder's speed",
        )
        keep("prepare_images", [compared], share_of_the_decoders_speed=round(1 / compared.ratio, 2))


def paint(folder: Path) -> None:
    """Images of four sizes and six modes in ten classes."""
    random = np.random.default_rng(0)
    tiles = [Image.fromarray(random.integers(0, 256, (12, 12, 3), np.uint8)) for _ in range(50)]
    for number in range(COUNT):
        side = (48, 64, 80, 96)[number % 4]
        image = tiles[number % 50].resize((side + 16, side), Image.Resampling.BILINEAR)
        path = folder / f"class {number % 10}" / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.convert(("RGB", "L", "P", "RGBA", "1", "LA")[number % 6]).save(path)


def timed(command: list[str], folder: Path) -> float:
    """Seconds of a command; its output folder is new."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return seconds(lambda: subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True))


if __name__ == "__main__":
    main()
