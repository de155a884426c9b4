"""Reuse of finished steps: a record for each key says which run holds the outputs, and is believed only if they do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from allranks.local import fingerprint
from allranks.local.checkpoints import find_saved_state
from allranks.local.file_locks import try_lock
from allranks.local.folders import RunFolder, RunsHome, StepFolder, child, write_json_file
from allranks.local.record_shapes import read_json_file
from allranks.local.result import SUCCEEDED


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A finished execution of a step, by the run that executed it and the name that it had there.

    Its outputs are known downstream by ``execution``: unique for each execution, and kept by every reuse.
    """

    run_id: str
    step: str
    execution: str

    def folder(self, home: RunsHome) -> StepFolder:
        """The folder that holds its outputs."""
        return home.run(self.run_id).step(self.step)


@dataclass(frozen=True, slots=True)
class StepCache:
    """The records of finished steps of one home, but for runs before ``since``: their ids start with the time."""

    home: RunsHome
    since: str = ""

    def find(self, key: str) -> FinishedStep | None:
        """The finished execution with this key, if its outputs are all there and unchanged."""
        record = read_json_file(self.home.cache / f"{key}.json")
        try:
            finished = FinishedStep(record["run_id"], record["step"], record["execution"])
            outputs = finished.folder(self.home).outputs
            is_known = bool(finished.run_id >= self.since and dict(record["outputs"]) is not None)
        except (KeyError, TypeError, ValueError):
            return None
        if not is_known:
            return None
        intact = all(fingerprint.tree_fingerprint(outputs / port) == files for port, files in record["outputs"].items())
        return finished if intact else None

    def remember(self, key: str, finished: FinishedStep, outputs: Path, ports: Iterable[str]) -> None:
        """Record an execution whose outputs stand in a folder that is about to become the run's.

        The record may come before the rename: it is believed only when the outputs are where it says.
        """
        files = {port: fingerprint.tree_fingerprint(outputs / port) for port in ports}
        write_json_file(self.home.cache / f"{key}.json", {**asdict(finished), "outputs": files})


class Workplace:
    """Where a step writes until it has succeeded: it belongs to the step's key, so the next attempt finds it.

    Two engines that want the same step meet here: the lock is held by the one that runs it.
    """

    def __init__(self, home: RunsHome, key: str) -> None:
        self.path = home.work(key)
        self._lock: int | None = None

    @property
    def outputs(self) -> Path:
        """What the step has written so far."""
        return child(self.path, "outputs")

    @property
    def journal(self) -> Path:
        """What a step with parts has noted of them: a sweep of its trials."""
        return self.path / "trials.json"

    @property
    def is_begun(self) -> bool:
        """Whether it holds something to resume from."""
        return self.outputs.exists() or self.journal.exists()

    def acquire(self) -> bool:
        """Take the lock; False while another engine runs the same step. The kernel frees it when the holder dies."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = try_lock(self.path / "lock")
        except (FileNotFoundError, FileExistsError):  # the folder was removed meanwhile by the one that finished
            return False
        if lock is None:
            return False
        if not _still_there(lock, self.path / "lock"):  # the same, a moment later
            os.close(lock)
            return False
        self._lock = lock
        return True

    def find_saved(self, ports: Iterable[str]) -> list[Path]:
        """The newest state in each of these outputs, as far as there is one."""
        found = (find_saved_state(self.outputs / port) for port in ports)
        return [saved.path for saved in found if saved is not None]

    def take_over(self, home: RunsHome, key: str) -> None:
        """Begin with a copy of what another step has written without finishing, unless an engine runs that step."""
        if not key:
            return
        other, half = Workplace(home, key), self.path / "half"
        if not self.is_begun and other.outputs.exists() and other.acquire():
            other.loosen_links()
            remove_path(half)
            shutil.copytree(other.outputs, half, symlinks=True)
            half.rename(self.outputs)
            other.release()

    def prepare(self, kept: Collection[str]) -> None:
        """Empty it for an attempt, but for the outputs named: those that a script may continue from."""
        self.outputs.mkdir(exist_ok=True)
        for entry in self.outputs.iterdir():
            if entry.name not in kept or not entry.resolve().is_relative_to(self.path.resolve()):
                remove_path(entry)

    def loosen_links(self) -> None:
        """Make absolute links within the outputs relative, since the outputs are about to be moved."""
        base = f"{self.outputs}/"
        for place, folders, names in os.walk(self.outputs):
            for link in (Path(place, name) for name in (*folders, *names)):
                if link.is_symlink() and (target := str(link.readlink())).startswith(base):
                    link.unlink()
                    link.symlink_to(os.path.relpath(target, place))

    def publish(self, folder: StepFolder) -> None:
        """Give the outputs to the run, whole, by one rename; the lock ends with the workplace."""
        remove_path(folder.outputs)
        self.outputs.rename(folder.outputs)
        self.discard()

    def discard(self) -> None:
        """Remove it, and the lock with it; gone at once for other engines, which may make it anew meanwhile."""
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        self.path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)  # the next start of a run removes what this could not
        self.release()

    def release(self) -> None:
        """Free the lock; what was written stays for the next attempt."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def saved_by(run: RunFolder, name: str) -> list[Path]:
    """The newest state in each output of ``mode: rw_mount`` of a step that has not succeeded.

    Of a script it is the working folder of each node to which it has written.
    """
    step = run.step(name)
    if (read_json_file(run.state) or {}).get("script"):
        return [work for work in sorted(step.path.glob("nodes/*/work")) if any(new_files(work, step.snapshot))]
    state = read_json_file(step.state) or {}
    key = state.get("key")
    return Workplace(run.home, key).find_saved(state.get("kept_outputs", ())) if key else []


def resume_rows(run: RunFolder) -> Iterator[tuple[str, str]]:
    """How a run is resumed, and what its unfinished steps have saved, but for sweeps: labels and texts."""
    yield "to resume", f"allranks run --resume {run.id}{run.home.option}"
    steps = (read_json_file(run.state) or {}).get("steps", {})
    for name in (name for name, step in steps.items() if step.get("attempts") and "trials" not in step):
        if steps[name]["status"] != SUCCEEDED:
            saved = [
                f"{path}; --keep-checkpoints starts from that even if {name} changes" for path in saved_by(run, name)
            ]
            yield f"{name} saved", (saved or ["nothing: it starts from the beginning"])[-1]


def new_files(work: Path, snapshot: Path) -> Iterator[str]:
    """The files and links of a working folder that were not in the snapshot, or are not as they were."""
    for path in work.rglob("*") if work.is_dir() else ():
        name = path.relative_to(work)
        if not (path.is_file() or path.is_symlink()) or "__pycache__" in name.parts:
            continue
        before = snapshot / name
        if (
            path.is_symlink()
            or not before.is_file()
            or (before.stat().st_size, before.stat().st_mtime_ns) != (path.stat().st_size, path.stat().st_mtime_ns)
        ):
            yield name.as_posix()


def forget_unfinished(home: RunsHome, others: Iterable[RunFolder]) -> None:
    """Remove what only the steps of a run that is about to be removed wrote without finishing.

    Kept is what an engine is writing, and what one of the other runs would continue.
    """
    _discard(home, {path.name for path in child(home.path, "work").glob("*") if not path.is_symlink()} - _keys(others))


def discard_leftovers(home: RunsHome) -> None:
    """Remove what killed processes left behind and nothing can go on from.

    That is a workplace without outputs, one that no run knows of, what was about to be removed, and the rest of a run
    that ``allranks runs remove`` did not come to the end of.
    """
    for path in (*home.runs.glob(".*.removed"), *child(home.path, "work").glob(".*")):
        shutil.rmtree(path, ignore_errors=True)
    places = {
        path.name: Workplace(home, path.name) for path in child(home.path, "work").iterdir() if not path.is_symlink()
    }
    if places:
        known = _keys(home.all_runs())
        _discard(home, {key for key, place in places.items() if key not in known or not place.is_begun})


def discard_copies(run: RunFolder) -> None:
    """Remove what the steps of a run whose engine was killed had for themselves: copies of inputs, installations."""
    for pattern in ("nodes/inputs", "nodes/*/python", "trials/*/nodes/inputs", "trials/*/nodes/*/python"):
        for path in run.path.glob(f"steps/*/{pattern}"):
            if path.resolve().is_relative_to(run.home.runs.resolve()):  # not through a link that leads elsewhere
                shutil.rmtree(path, ignore_errors=True)


def _discard(home: RunsHome, keys: Iterable[str]) -> None:
    for place in (Workplace(home, key) for key in keys if home.work(key).is_dir()):
        if place.acquire():
            place.discard()


def _keys(runs: Iterable[RunFolder]) -> set[str]:
    """The keys of all steps and trials of the runs."""
    patterns = ("steps/*/step.json", "steps/*/trials/*/step.json")
    states = (read_json_file(path) for run in runs for pattern in patterns for path in run.path.glob(pattern))
    return {str(state["key"]) for state in states if state and state.get("key")}


def _still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def link_folder(path: Path, target: Path) -> None:
    """Let ``path`` be a link to a folder; relative, so that the runs folder can be moved as a whole."""
    remove_path(path)
    path.symlink_to(os.path.relpath(target, path.parent), target_is_directory=True)


def remove_path(path: Path) -> None:
    """Remove a file, a link or a folder with everything below it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
