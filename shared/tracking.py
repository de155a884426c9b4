"""Metrics of a run: a line of JSON for each report, and MLflow where there is one. Rank 0 alone writes.

`outputs/metrics.jsonl` is uploaded by Azure ML and watched by the local engine. MLflow takes over a second to import
and may be slow or away, so a thread talks to it and training never waits for it, nor fails because of it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from shared.storage import append_text, read_bytes, write_text

if TYPE_CHECKING:
    from shared.distributed import World

_SECRET = re.compile(r"TOKEN|KEY|SECRET|SAS|PASSWORD", re.IGNORECASE)
_CLOSE_SECONDS = 120.0
"""How long the end waits for MLflow to take what is left."""
_FAILED_SECONDS = 0.4
"""The same in a rank that fails: whoever started it hears of it when it has ended, and `metrics.jsonl` is whole."""

REPORT_SECONDS = 1.0
"""How often a preparation is reported, and how long it may take without any report."""

_Item = tuple[Literal["metrics", "params", "artifacts"], Mapping[str, Any], int, float]
"""What to send to MLflow: its kind, values by name, step and time."""


class Tracker:
    """Reports metrics to `metrics.jsonl` in a folder; a context manager that flushes them at its end.

    On ranks above 0 nothing happens. `total_steps` of the whole run are for a progress display. `clock` returns the
    seconds since 1970 that go with each report.
    """

    def __init__(
        self,
        world: World,
        total_steps: int | None = None,
        folder: str | Path = "outputs",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._total, self._clock = total_steps, clock
        self._path: Path | None = Path(folder) / "metrics.jsonl" if world.is_main else None
        self._mlflow: _MLflowThread | None = None
        self._has_warned = False
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if os.environ.get("MLFLOW_TRACKING_URI"):
                self._mlflow = _MLflowThread()

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Report named numbers at a step; numbers that are not finite are left out, because JSON has none."""
        if self._path is None:
            return
        now = self._clock()
        finite = {name: value for name, value in metrics.items() if abs(value) < float("inf")}
        line = json.dumps({"time": now, "step": step, "total": self._total, "metrics": finite}, allow_nan=False)
        try:
            append_text(self._path, line + "\n")
        except OSError as error:  # the training is worth more than a line about it
            if not self._has_warned:
                _warn(f"warning: the metrics of step {step} could not be written, others may lack too: {error}")
            self._has_warned = True
        if self._mlflow is not None:
            self._mlflow.put(("metrics", finite, step, now))

    def take_back(self, is_kept: Callable[[int, Mapping[str, float]], bool]) -> int:
        """Drop the lines, told by step and metrics, of steps that are done again, and what a kill has left of a line.

        torchrun starts its ranks again in the same folder. What MLflow has of these steps stays there, and comes again.

        Returns:
            The last of these steps; 0 without any.
        """
        if self._path is None:
            return 0
        try:
            lines = read_bytes(self._path).decode("utf-8", errors="replace").splitlines(keepends=True)
            entries = [(line, entry) for line in lines if (entry := _entry_of(line))]
            dropped = [entry["step"] for _, entry in entries if not is_kept(entry["step"], entry["metrics"])]
            if dropped or len(entries) < len(lines):
                kept = (line for line, entry in entries if is_kept(entry["step"], entry["metrics"]))
                write_text(self._path, "".join(kept))
            return max(dropped, default=0)
        except FileNotFoundError:
            return 0
        except OSError as error:
            _warn(f"warning: metrics of steps that are done again stay in {self._path}: {error}")
            return 0

    def artifacts(self, folder: str | Path) -> None:
        """Report the files of a folder to MLflow, below the folder's name; they stay there until the tracker closes."""
        if self._mlflow is not None:
            self._mlflow.put(("artifacts", {"folder": str(folder)}, 0, self._clock()))

    def params(self, params: Mapping[str, object]) -> None:
        """Report the run's settings to MLflow, without those whose name speaks of a secret and without credentials."""
        if self._mlflow is not None:
            shown = {name: _without_credentials(str(v)) for name, v in params.items() if not _SECRET.search(name)}
            self._mlflow.put(("params", shown, 0, self._clock()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Send what is left to MLflow, waiting for two minutes at most, or half a second if the rank fails."""
        if self._mlflow is not None:
            self._mlflow.close(failed=kind is not None)


def _entry_of(line: str) -> dict[str, Any] | None:
    """A line of metrics; None if it is not whole."""
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return entry if line.endswith("\n") else None


class _MLflowThread(threading.Thread):
    """Sends what is put into its queue to one MLflow run."""

    def __init__(self) -> None:
        # A daemon: a tracking server that hangs must not keep a finished rank alive.
        super().__init__(name="mlflow", daemon=True)
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._failed = False
        self.start()

    def put(self, item: _Item) -> None:
        self._queue.put(item)

    def close(self, *, failed: bool) -> None:
        self._failed = failed
        self._queue.put(None)
        patience = _FAILED_SECONDS if failed else _CLOSE_SECONDS
        self.join(patience)
        if self.is_alive():
            _warn(f"MLflow did not take the last metrics within {patience:g} s")

    def run(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # noqa: BLE001  # whatever MLflow does, training goes on
            _warn(f"MLflow is not used: {type(error).__name__}: {error}")

    def _send_all(self) -> None:
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells about each table that it makes
        with _initialising(os.environ["MLFLOW_TRACKING_URI"]):
            client = MlflowClient()
            run_id, ours = _run(client)
        more = True
        while more:
            items, more = self._next_items()
            metrics = [
                Metric(name, float(value), int(when * 1000), step)
                for kind, values, step, when in items if kind == "metrics"
                for name, value in values.items()
            ]  # fmt: skip
            params = [Param(n, v) for kind, values, *_ in items if kind == "params" for n, v in values.items()]
            for start in range(0, len(params), 100):  # MLflow takes a hundred settings, or a thousand metrics, at once
                client.log_batch(run_id, params=params[start : start + 100])
            for start in range(0, len(metrics), 1000):
                client.log_batch(run_id, metrics=metrics[start : start + 1000])
            for folder in [Path(values["folder"]) for kind, values, *_ in items if kind == "artifacts"]:
                _send_files(client, run_id, folder)
        if ours:
            client.set_terminated(run_id, "FAILED" if self._failed else "FINISHED")

    def _next_items(self) -> tuple[list[_Item], bool]:
        """Wait for an item and take those that came with it; the flag says whether there will be more."""
        items = []
        item = self._queue.get()
        while item is not None:
            items.append(item)
            try:
                item = self._queue.get(timeout=0.5)
            except queue.Empty:
                return items, True
        return items, False


def _send_files(client: Any, run_id: str, folder: Path) -> None:
    """Log a folder; files go to another service than numbers, and these go on without them."""
    try:
        client.log_artifacts(run_id, str(folder), artifact_path=folder.name)
    except Exception as error:  # noqa: BLE001  # whatever that service does, the numbers are still worth having
        _warn(f"MLflow has not taken the files of {folder.name}: {type(error).__name__}: {error}")


def _run(client: Any) -> tuple[str, bool]:
    """Give the run to log to, and whether we started it: Azure ML has one for each job, elsewhere there is none yet."""
    if os.environ.get("MLFLOW_RUN_ID"):
        return os.environ["MLFLOW_RUN_ID"], False
    name = os.environ.get("AZUREML_ARM_PROJECT_NAME", "Default")
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        experiment_id = client.create_experiment(name, artifact_location=_artifact_location())
    else:
        experiment_id = experiment.experiment_id
    root = os.environ.get("AZUREML_ROOT_RUN_ID", "")
    tags = {"allranks.run": root, "mlflow.parentRunId": _parent(client, experiment_id, root)} if root else None
    run = client.create_run(experiment_id, run_name=run_name(), tags=tags)
    return run.info.run_id, True


def _parent(client: Any, experiment_id: str, root: str) -> str:
    """Give the MLflow run of the whole pipeline run, made by the first step that logs; the steps are its children."""
    found = client.search_runs([experiment_id], f"tags.`allranks.root` = '{root}'", max_results=1)
    if found:
        return str(found[0].info.run_id)
    parent = client.create_run(experiment_id, run_name=root, tags={"allranks.root": root})
    client.set_terminated(parent.info.run_id)
    return str(parent.info.run_id)


def _artifact_location() -> str | None:
    """Beside a database in a file; otherwise MLflow would put files into the working folder of the step."""
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if not uri.startswith("sqlite:///"):
        return None
    return (Path(uri.removeprefix("sqlite:///")).absolute().parent / "mlflow").as_uri()


def run_name() -> str | None:
    """Name of the step: what follows the root run's id in AZUREML_RUN_ID, or its last part; None without it."""
    run, root = os.environ.get("AZUREML_RUN_ID", ""), os.environ.get("AZUREML_ROOT_RUN_ID", "")
    rest = run.removeprefix(root).lstrip("_-./:") if root and run != root else ""
    return rest or re.split(r"[./:]", run)[-1] or None


@contextmanager
def _initialising(uri: str) -> Iterator[None]:
    """Let one process at a time create the tables of a sqlite database: several steps start at once."""
    if not uri.startswith("sqlite:///"):
        yield
        return
    path = Path(uri.removeprefix("sqlite:///") + ".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _warn(text: str) -> None:
    with suppress(OSError):  # a log on a disk that is full
        print(_without_credentials(text), file=sys.stderr, flush=True)


def _without_credentials(text: str) -> str:
    """Take user names, passwords and queries out of addresses, and tokens out of the text; one line."""
    text = re.sub(r"(\w+://)[^/@\s]+@", r"\1", text)
    text = re.sub(r"\?\S+", "", text)
    for name, value in os.environ.items():
        if _SECRET.search(name) and len(value) >= 8:
            text = text.replace(value, "***")
    return " ".join(text.split())[:500]


class PreparationProgress(ExitStack):
    """Reports how far a preparation is: to `metrics.jsonl` each second, a line each ten; nothing of a moment's work.

    A context manager, which closes the report; `what` is counted, such as ``rows``.
    """

    def __init__(self, world: World, total: int, what: str = "rows") -> None:
        super().__init__()
        self._world, self._total, self._what, self._done = world, total, what, 0
        self._started = self._logged = self._noted = time.monotonic()
        self._tracker: Tracker | None = None

    def add(self, count: int) -> None:
        """Count what is done."""
        self.reach(self._done + count)

    def reach(self, done: int) -> None:
        """Say how much is done altogether."""
        self._done, now = done, time.monotonic()
        if now - self._logged < REPORT_SECONDS:
            return
        if self._tracker is None:  # not at once: MLflow, to which it reports too, takes seconds to import
            self._tracker = self.enter_context(Tracker(self._world, self._total))
        self._logged = now
        speed = self._log(self._tracker, now)
        if now - self._noted >= 10:
            self._noted = now
            self._world.note(f"written {done:,} of {self._total:,} {self._what}, {speed:,.0f} {self._what}/s")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Report the end too, where anything was reported: else one that is done seems to have stopped before it."""
        if kind is None and self._tracker is not None:
            self._done = self._total  # bytes are counted as they are read, and need not add up to the files' sizes
            self._log(self._tracker, time.monotonic())
        return super().__exit__(kind, error, trace)

    def _log(self, tracker: Tracker, now: float) -> float:
        """Log how much is done, and return how much of it in a second."""
        speed = self._done / (now - self._started)
        tracker.log({f"{self._what}_per_second": speed}, step=self._done)
        return speed
