"""How far a step is while it runs: the training's step that it has logged, and what it has written of checkpoints."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from allranks.local.checkpoints import SavedCheckpoint
from allranks.local.folders import RunFolder, StepFolder
from allranks.local.plan import PlannedStep
from allranks.local.record_shapes import read_json_file
from allranks.local.result import ProgressLook
from allranks.local.tracking.jobs import job_run_id
from allranks.local.tracking.reading import TrackingReader

_QUIET_SECONDS = 0.3  # without a change: what was being written is whole, where nothing says that
_TRACKED_SECONDS = 0.2  # between two looks at what was logged with MLflow
_COMMITTED = "manifest.json"  # the last file of a checkpoint of ours


class StepWatch:
    """What one attempt of a step has done so far; looked at many times a second."""

    def __init__(self, run: RunFolder, step: PlannedStep) -> None:
        self._run = run
        self._step = step
        self._folder: StepFolder = run.step(step.name)
        self._look = ProgressLook(self._folder.metrics())
        self._began = time.time()
        self._tracked: int | None = None
        self._tracked_due = 0.0
        self.outputs = _work_outputs(run, self._folder)
        self._before = _tree(self.outputs)
        self._last = self._before
        self._changed_at: float | None = None

    @property
    def trained_step(self) -> int | None:
        """The last step of the training that this attempt has logged; None before it logs one."""
        found = self._look.look().step
        if found is not None:
            return found
        now = time.monotonic()
        if now >= self._tracked_due:
            self._tracked = logged_step(self._run, self._step.name, self._began)
            self._tracked_due = now + _TRACKED_SECONDS
        return self._tracked

    def is_saving(self) -> bool:
        """Whether this attempt has begun to write something into its outputs that was not there before."""
        return _tree(self.outputs) != self._before

    def has_saved(self) -> bool:
        """Whether this attempt has written a whole checkpoint."""
        now, tree = time.monotonic(), _tree(self.outputs)
        if tree != self._last:
            self._last, self._changed_at = tree, now
        new = set(tree) - set(self._before)
        if any(Path(name).name == _COMMITTED for name in new):
            return True
        if any(Path(name).name == _COMMITTED or re.search(r"rank-\d{5,}-", name) for name in tree):
            return False  # a checkpoint of ours that has no manifest yet
        return bool(new) and self._changed_at is not None and now - self._changed_at > _QUIET_SECONDS


def logged_step(run: RunFolder, step: str, since: float = 0.0) -> int | None:
    """The highest step that was logged with MLflow since then (seconds since 1970); None where none above 0 was."""
    try:
        with TrackingReader(run.home) as reader:
            points = [point for one in reader.metrics(job_run_id(run.id, step)).values() for point in one]
    except OSError:
        return None
    return max((point.step for point in points if point.time >= since and point.step > 0), default=None)


def corrupt_file(saved: SavedCheckpoint) -> Path | None:
    """Flip a bit in the middle of the largest file of a checkpoint; return that file, or None for an empty checkpoint.

    What a link leads to outside of the checkpoint's folder is left alone.
    """
    folder, found = saved.path.parent.resolve(), (saved.path, *saved.path.rglob("*"))
    files = [path for path in found if path.is_file() and path.resolve().is_relative_to(folder)]
    largest = max(files, key=lambda path: path.stat().st_size, default=None)
    if largest is None or largest.stat().st_size == 0:
        return None
    middle = largest.stat().st_size // 2
    with largest.open("r+b") as opened:
        opened.seek(middle)
        byte = opened.read(1)[0]
        opened.seek(middle)
        opened.write(bytes([byte ^ 1]))
    return largest


def _work_outputs(run: RunFolder, folder: StepFolder) -> Path:
    """Where a step writes until it has succeeded."""
    state = read_json_file(folder.state) or {}
    return run.home.path / "work" / str(state.get("key", "")) / "outputs"


def _tree(outputs: Path) -> dict[str, int]:
    """The files below a folder that is being written to, with their sizes."""
    found = {}
    for place, _, names in os.walk(outputs):
        for name in names:
            path = f"{place}/{name}"
            try:
                found[path] = os.stat(path).st_size  # noqa: PTH116 looked at a hundred times a second
            except OSError:
                continue
    return found
