"""A table of 5 million rows: memory and time to prepare it, against 1 million rows and Arrow alone; then it trains.

    python benchmarks/prepare_tables.py

Arrow alone reads the same file into memory and writes one .npy file: no classes, no splits, no shuffling, no hashes.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet
from side_by_side import in_turn, keep

ROOT = Path(__file__).parents[1]
SIZES = (1_000_000, 5_000_000, 10_000_000)
FEATURES = 10
ARROW = """
import sys
import numpy as np
from pyarrow import csv, parquet
read = csv.read_csv if sys.argv[1].endswith("csv") else parquet.read_table
table = read(sys.argv[1])
np.save("out.npy", np.stack([column.to_numpy() for column in table.columns], 1).astype("float32"))
"""


READING = """
import numpy as np
from shared.data import Dataset, batches
split = Dataset.open("out").split("train")
for rows in batches(split.rows, batch_size=8192, seed=0, epoch=0):
    split.take(rows)
"""


def main() -> None:
    """Measure and keep."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        peaks = {}
        for kind in ("csv", "parquet"):
            for rows in SIZES:
                peaks[f"{kind}, {rows:,} rows"] = round(run(prepare(kind, rows), folder)[1])
        compared = [
            in_turn(
                f"{SIZES[1]:,} rows of {kind}",
                ("prepare_data", partial(time_of, prepare(kind, SIZES[1]), folder)),
                ("Arrow alone", partial(time_of, ["-c", ARROW, f"{SIZES[1]}.{kind}"], folder)),
                rounds=1,
                limit="no limit",
            )
            for kind in ("csv", "parquet")
        ]
        run(prepare("csv", SIZES[1]), folder)
        reading = run(["-c", READING], folder)[2]
        train = [str(ROOT / "components" / "train_ddp" / "train_ddp.py"), "--data", "out", "--epochs", "1"]
        ports = [part for port in ("model", "checkpoints", "metrics") for part in (f"--{port}", port)]
        epoch, memory, busy = run([*train, "--batch-size", "8192", *ports], folder)
        keep(
            "prepare_tables",
            compared,
            peak_mib_of_prepare_data=peaks,
            one_epoch_of_train_ddp_on_3_500_000_rows={
                "seconds": round(epoch, 1),
                "processor_seconds_on_one_thread": round(busy, 1),
                "processor_seconds_of_reading_all_batches": round(reading, 1),
                "peak_mib": round(memory),
            },
        )


def time_of(words: list[str], folder: Path) -> float:
    """Seconds that a command of Python takes."""
    return run(words, folder)[0]


def write_tables(folder: Path) -> None:
    """Ten numbers and one of three classes in each row."""
    random = np.random.default_rng(0)
    for rows in SIZES:
        csv_writer: Any = None
        parquet_writer: Any = None
        for _ in range(0, rows, 250_000):
            x = random.normal(size=(250_000, FEATURES)).round(4).astype("float32")
            target = (x.sum(1) > 0).astype(int) + (x[:, 0] > 1)
            table = pa.table({**{f"f{number}": x[:, number] for number in range(FEATURES)}, "target": target})
            csv_writer = csv_writer or csv.CSVWriter(folder / f"{rows}.csv", table.schema)
            parquet_writer = parquet_writer or parquet.ParquetWriter(folder / f"{rows}.parquet", table.schema)
            csv_writer.write(table)
            parquet_writer.write_table(table)
        csv_writer.close()
        parquet_writer.close()


def prepare(kind: str, rows: int) -> list[str]:
    """Arguments of Python that prepare a table."""
    script = ROOT / "components" / "prepare_data" / "prepare_data.py"
    return [str(script), "--dataset", kind, "--data", f"{rows}.{kind}", "--output-data", "out"]


def run(arguments: list[str], folder: Path) -> tuple[float, float, float]:
    """Seconds of Python with these arguments, its largest resident size in MiB, and the processor's seconds."""
    if arguments[0].endswith("prepare_data.py"):
        shutil.rmtree(folder / "out", ignore_errors=True)
    # One thread for the training: several wait for one another in a loop, and on a busy machine count that as work.
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    before = _processor_seconds_of_children()
    start, peak = time.perf_counter(), 0.0
    process = subprocess.Popen([sys.executable, *arguments], cwd=folder, env=environ, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        with suppress(OSError, StopIteration):
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peak = max(peak, int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024)
        time.sleep(0.02)
    assert process.returncode == 0, arguments
    return time.perf_counter() - start, peak, _processor_seconds_of_children() - before


def _processor_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
