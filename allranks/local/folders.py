"""Where everything of a run lies on disk: the layout is written down here and nowhere else.

::

    .allranks/
        tracking.db, mlflow/                what all runs logged with MLflow, and the files that they logged
        assets/<name>.json                  outputs that were registered under a name, by version
        environments/<name>/                one of ours that was built; environments/<name>-<key>/ other people's
        images/<image>/, <image>.log        what an image was built from, and what its build said
        cache/<key>.json                    which run holds the outputs of a finished step
        work/<key>/                         a step that is not finished: its outputs so far, and the lock on them
        work/<key>/trials.json              of a sweep that is not finished: its trials so far, and how they ended
        runs/<id>/
            alive                           locked while an engine runs it
            run.json                        target, values, status; one entry for each step; secrets blotted out
            request.json                    what was asked for and the pipeline as it was read, for ``--resume``
            tracking.txt                    what the tracking server said, if it could not start
            report.html, page.json          graph, timeline, metrics, logs; what that shows, once the run has ended
            installed/                      what steps install of which that could not be seen beforehand
            steps/<step>/
                step.json                   status, command, variables of rank 0, outputs and their files
                resources.jsonl             what its ranks used while they ran, see ``resources/samples.py``
                snapshot/                   the files that the step's nodes got
                nodes/<n>/work/             the working folder of node n, a copy of the snapshot
                nodes/<n>/python/           what it installs, until the step ends
                nodes/containers/           what its containers are started with, secrets included
                outputs/<port>              published by one rename when the step has succeeded
                parallel/                   of a parallel step: its order, the worker's program, results one by one
                user_logs/                  std_log.txt, or std_log_process_<rank>.txt
                attempts/<k>/user_logs/     logs of earlier attempts that failed
                trials/<k>/                 of a sweep: the same for each trial, all from the sweep's one snapshot;
                                            the sweep's own outputs and user_logs are links to those of the best
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.errors import StorageError, UnknownNameError
from allranks.files import write_text
from allranks.local.file_locks import try_lock
from allranks.local.private_files import make_private_folder

DEFAULT_HOME = ".allranks"
RUNS_MARK = "CACHEDIR.TAG"  # what also tells backup programs that a folder can be left out
RUNS_MARK_TEXT = """Signature: 8a477f597d28d172789f06886806bc55
# Runs of allranks lie here; no snapshot takes them along. See https://bford.info/cachedir/
"""

_OTHER_FOLDER = "Choose another runs folder with --runs-dir DIR, or correct this one."
_KEPT_ROOM = 2**17
"""Bytes that a run takes at its start, so that what became of it can be written on a disk that is full by then."""


def is_plain_name(value: object) -> bool:
    """Return whether a value can name an entry of a folder: one printable part of a path, and not ``.`` or ``..``."""
    is_part = isinstance(value, str) and value.isprintable() and "/" not in value and value not in ("", ".", "..")
    return is_part and len(str(value).encode()) < 256


def child(root: Path, *names: object, source: object = "") -> Path:
    """Return a path below a folder, each part of which is a name that a file, a database or a user gives.

    Args:
        root: the folder; it may be a link itself.
        names: a name for each level; there may be no such entry.
        source: what gave the names, for the message.

    Raises:
        StorageError: a value is not one plain name, or an entry is a link that leads out of the folder.
    """
    path = root
    for name in names:
        if not is_plain_name(name):
            raise StorageError(
                f"{repr(name)[:255]}{source and f' in {source}'} names nothing in {path}: "
                "a name is printable, has no '/', and is not '', '.' or '..'.",
                _OTHER_FOLDER,
            )
        path /= str(name)
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            raise StorageError(f"{path} is a link to {path.resolve()}, which is not in {root}.", _OTHER_FOLDER)
    return path


@dataclass(frozen=True, slots=True)
class StepFolder:
    """One step's folder inside a run; that of a trial's ``sweep`` holds the snapshot of all its trials."""

    path: Path
    sweep: Path | None = None

    @property
    def state(self) -> Path:
        """What became of the step."""
        return self.path / "step.json"

    @property
    def resources(self) -> Path:
        """What its ranks have used of the machine."""
        return self.path / "resources.jsonl"

    @property
    def snapshot(self) -> Path:
        """The files that every node gets."""
        return (self.sweep or self.path) / "snapshot"

    @property
    def outputs(self) -> Path:
        """The published outputs, one entry for each port."""
        return self.path / "outputs"

    @property
    def logs(self) -> Path:
        """The folder of the logs."""
        return self.path / "user_logs"

    def log(self, rank: int | None) -> Path:
        """The log of one rank, named as on Azure ML; None for a step without a distribution."""
        return self.logs / ("std_log.txt" if rank is None else f"std_log_process_{rank}.txt")

    def attempt_logs(self, attempt: int) -> Path:
        """Where the logs of the failed attempt with this number (from 1) are kept."""
        return self.path / "attempts" / str(attempt) / "user_logs"

    def work(self, node: int) -> Path:
        """The working folder of a node."""
        return self.path / "nodes" / str(node) / "work"

    @property
    def downloads(self) -> Path:
        """Copies of the inputs of ``mode: download``, while the step runs."""
        return self.path / "nodes" / "inputs"

    def overlay(self, node: int) -> Path:
        """What a node's processes install; see ``overlay.py``."""
        return self.path / "nodes" / str(node) / "python"

    @property
    def parallel(self) -> Path:
        """What the coordinator of a parallel step is told, and collects."""
        return self.path / "parallel"

    def metrics(self) -> Path:
        """What rank 0 writes its metrics to; Azure ML uploads the same file."""
        return self.work(0) / "outputs" / "metrics.jsonl"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's folder."""

    path: Path

    @property
    def id(self) -> str:
        """The run's id, which is the folder's name."""
        return self.path.name

    @property
    def state(self) -> Path:
        """What was asked for, and what became of it."""
        return self.path / "run.json"

    @property
    def request(self) -> Path:
        """How it was started, secrets included: what ``--resume`` starts again."""
        return self.path / "request.json"

    @property
    def report(self) -> Path:
        """The page for people; what it shows is beside it, see ``page/document.py``."""
        return self.path / "report.html"

    @property
    def home(self) -> RunsHome:
        """The folder that holds all runs."""
        return RunsHome(self.path.parents[1])

    def installed(self, interpreter: str) -> Path:
        """Where unforeseen installations go, by the interpreter that they would have changed."""
        return self.path / "installed" / interpreter

    def lock(self) -> int:
        """Mark the run as alive until the returned descriptor is closed; truncating the file frees its kept room."""
        descriptor = try_lock(self.path / "alive")
        assert descriptor is not None  # noqa: S101 the run is new
        os.posix_fallocate(descriptor, 0, _KEPT_ROOM)
        return descriptor

    @property
    def alive(self) -> bool:
        """Whether an engine is running it, in whatever process."""
        path = self.path / "alive"
        if not os.access(path, os.W_OK):
            return False
        descriptor = try_lock(path)
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is None

    def step(self, name: str) -> StepFolder:
        """Return the folder of a step, nested ones by their dotted name, or of trial ``sweep.<number>``.

        Raises:
            StorageError: the name is not a plain one, or the folder is a link that leads out of the run.
        """
        sweep, _, number = name.rpartition(".")
        if sweep and number.isdigit():  # no step's name begins with a digit
            folder = child(self.path, "steps", sweep)
            return StepFolder(child(folder, "trials", number), folder)
        return StepFolder(child(self.path, "steps", name))

    def executed(self, name: str, noted: str = "") -> StepFolder:
        """Return the folder in which a step or trial was executed; that of a reused one lies in another run.

        It is the one that was ``noted``, or else the one of the logs, which are a link then. A folder outside of the
        runs is not believed: the step's own is returned.
        """
        own = self.step(name)
        place = Path(noted) if noted else own.logs.resolve().parent
        return StepFolder(place) if place.resolve().is_relative_to(self.path.parent.resolve()) else own


@dataclass(frozen=True, slots=True)
class RunsHome:
    """The folder that holds all runs, ``.allranks`` unless told otherwise.

    Each path raises StorageError where it is a link that leads out of the folder: what lies there is not ours.
    """

    path: Path

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return child(self.path, "runs")

    @property
    def cache(self) -> Path:
        """The folder of the records of finished steps."""
        return child(self.path, "cache")

    @property
    def bytecode(self) -> Path:
        """What modules of snapshots were compiled to: see ``bytecode.py``."""
        return child(self.path, "bytecode")

    @property
    def tracking(self) -> Path:
        """The database of what was logged with MLflow: see ``tracking/``."""
        return child(self.path, "tracking.db")

    @property
    def mlflow_files(self) -> Path:
        """The files that were logged to MLflow: they are all runs' and outlive the folder of each."""
        return child(self.path, "mlflow")

    @property
    def option(self) -> str:
        """The option with which a command finds these runs; empty where it looks for them anyway."""
        is_default = self.path.resolve() == Path(DEFAULT_HOME).resolve()
        return "" if is_default else f" --runs-dir {shlex.quote(str(self.path))}"

    def work(self, key: str) -> Path:
        """The folder of a step that is not finished, by the step's key."""
        return child(self.path, "work", key)

    def run(self, run_id: str) -> RunFolder:
        """The folder of a run, whether it exists or not."""
        return RunFolder(child(self.path, "runs", run_id))

    def prepare(self) -> None:
        """Make the folders; raises StorageError if the place cannot be written to."""
        if self.path.is_file():
            raise StorageError(f"the runs folder {self.path} is a file.", _OTHER_FOLDER)
        # Links are refused now, and not when a step has been executed for hours.
        places = [
            child(self.path, one) for one in ("runs", "cache", "work", "assets", "bytecode", "mlflow", "tracking.db")
        ]
        try:
            make_private_folder(self.path)
            for name, text in ((RUNS_MARK, RUNS_MARK_TEXT), (".gitignore", "*\n")):  # before a snapshot sees the rest
                if not (self.path / name).exists():
                    write_text(self.path / name, text, follow_links=False)
            for folder in places[:3]:
                make_private_folder(folder)
        except OSError as error:
            message = f"cannot write to the runs folder {self.path}: {error.strerror or error}."
            raise StorageError(message, _OTHER_FOLDER) from error
        if not os.access(self.runs, os.W_OK | os.X_OK):
            raise StorageError(f"the runs folder {self.path} is not writable.", _OTHER_FOLDER)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Within the block what the system says of writing here, such as that the disk is full, is a StorageError."""
        try:
            yield
        except BrokenPipeError:  # of what is printed: nobody reads it any more
            raise
        except OSError as error:
            raise StorageError(
                f"cannot go on in the runs folder {self.path}: {error}.",
                "Once there is room, and the folder can be written to, the same command goes on from here.",
            ) from error

    def all_runs(self) -> list[RunFolder]:
        """Every run, oldest first (ids start with the time)."""
        if not self.runs.is_dir():
            return []
        return [RunFolder(p) for p in sorted(self.runs.iterdir()) if (p / "run.json").is_file()]

    def find(self, name: str) -> RunFolder:
        """A run by its id, a unique beginning of it, or ``latest``; raises UnknownNameError unless one answers."""
        runs = self.all_runs()
        matches = runs[-1:] if name == "latest" else [run for run in runs if run.id.startswith(name)]
        exact = [run for run in matches if run.id == name]
        if len(exact or matches) == 1:
            return (exact or matches)[0]
        if not runs:
            raise UnknownNameError(f"there are no runs in {self.runs}.", "Start one with `allranks run`.")
        problem = f"fits {len(matches)} runs" if matches else f"is not among the runs in {self.runs}"
        newest = ", ".join(run.id for run in (matches or runs)[-5:])
        raise UnknownNameError(f"{name!r} {problem}; the newest: {newest}.", "See `allranks runs list`.")


def write_json_file(path: Path, document: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(document, indent=1) + "\n", follow_links=False)
