"""Event files for TensorBoard are read as far as they are whole, and their numbers are metrics like others.

The files in ``event_files/`` were written by ``torch.utils.tensorboard`` 2.13 (numbers, new_style ones, a text, a
histogram, an image) and by ``tf.summary`` of TensorFlow 2.21 (numbers, a text, a histogram).
"""

from __future__ import annotations

import math
import random
import re
import struct
from pathlib import Path

from allranks.local.event_files import _masked_crc, read_event_file
from allranks.local.event_folders import EventCurves
from tests.local.support import allranks, pipeline, run_json, step

FILES = Path(__file__).parent / "event_files"
TORCH = FILES / "events.out.tfevents.torch"
KERAS = FILES / "keras/train/events.out.tfevents.v2"


def test_numbers_of_torch_and_tensorflow_are_read_and_all_else_is_passed_over() -> None:
    points, end = read_event_file(TORCH)
    assert end == TORCH.stat().st_size
    values = [(tag, step, round(value, 4)) for tag, step, value in points if tag != "odd"]
    assert values[:3] == [("loss", 1, 1.0), ("val/accuracy", 1, 0.25), ("precise", 1, 0.3333)]
    assert values[-1] == ("end", 5, 7.0), "behind the text, the histogram and the image"
    assert len(values) == 10
    assert [point.value for point in points if point.tag == "precise"] == [1 / 3] * 3, "in double precision"
    assert [math.isnan(point.value) for point in points if point.tag == "odd"] == [True]
    points, end = read_event_file(KERAS)
    assert end == KERAS.stat().st_size
    assert [(tag, step, round(value, 4)) for tag, step, value in points] == [
        ("epoch_loss", 0, 2.0),
        ("epoch_loss", 1, 1.0),
        ("epoch_loss", 2, 0.6667),
    ]


def test_a_cut_file_gives_what_is_whole_and_is_continued_where_it_was_cut(tmp_path: Path) -> None:
    content, whole = TORCH.read_bytes(), read_event_file(TORCH)[0]
    growing = tmp_path / "events.out.tfevents.1"
    for size in range(0, len(content), 41):
        growing.write_bytes(content[:size])
        before, offset = read_event_file(growing)
        assert offset <= size
        assert repr(before + read_event_file(TORCH, offset)[0]) == repr(whole)


def test_damage_ends_the_reading_and_raises_nothing(tmp_path: Path) -> None:
    content, whole = TORCH.read_bytes(), read_event_file(TORCH)[0]
    damaged, chance = tmp_path / "events.out.tfevents.1", random.Random(1)
    for _ in range(200):
        changed = bytearray(content)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        damaged.write_bytes(changed)
        found, _ = read_event_file(damaged)
        assert repr(whole[: len(found)]) == repr(found), "never a wrong number"
    header = struct.pack("<Q", 2**63)
    damaged.write_bytes(header + struct.pack("<I", _masked_crc(header)))
    assert read_event_file(damaged) == ([], 0)
    assert read_event_file(tmp_path / "missing") == ([], 0)


def test_equal_tags_are_told_apart_by_their_folders() -> None:
    curves = EventCurves([FILES]).look()
    assert {"train/epoch_loss", "validation/epoch_loss"} <= {name.removeprefix("keras/") for name in curves}
    assert set(EventCurves([FILES / "keras"]).look()) == {"train/epoch_loss", "validation/epoch_loss"}
    assert set(EventCurves([FILES / "keras/train"]).look()) == {"epoch_loss"}


def test_a_step_that_logs_for_tensorboard_has_its_metrics_and_curves(tmp_path: Path) -> None:
    """Beside its other ones, which come first; in an output, and in the folder that torch's writer takes by itself."""
    logged = '{"step": 1, "metrics": {"loss": 0.5}}'
    script = (
        f"mkdir -p outputs runs/now; cp {TORCH} runs/now; cp -r {FILES}/keras ${{{{outputs.logs}}}}; "
        f"echo '{logged}' > outputs/metrics.jsonl"
    )
    pipeline(tmp_path, f"type: pipeline\njobs: {{train: {step(script, outputs='logs: {type: uri_folder}')}}}\n")
    for _ in range(2):  # executed, and reused
        metrics = run_json("pipeline.yaml", cwd=tmp_path)["steps"]["train"]["metrics"]
        epoch = {name: round(value, 3) for name, value in metrics.items() if "epoch_loss" in name}
        assert sorted(epoch.values()) == [0.667, 1.0]
        others = {name: metrics[name] for name in metrics if name not in epoch}
        assert others == {"loss": 0.5, "val/accuracy": 0.75, "precise": 1 / 3, "odd": "NaN", "end": 7.0}
        page = max(tmp_path.glob(".allranks/runs/*/report.html")).read_text()
        charts = re.findall(r'aria-label="([^"]*) over steps"', page)
        assert "val/accuracy" in charts
        assert "loss" not in charts, "metrics.jsonl has one value of it"
    assert "val/accuracy=0.75" in allranks("runs", "show", "latest", cwd=tmp_path).stdout
