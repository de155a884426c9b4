"""``allranks runs open RUN --tensorboard`` and ``--mlflow``: other people's tools on what a run has logged."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from allranks.cli.run_state import steps_and_trials
from allranks.cli.token_proxy import TokenProxy
from allranks.errors import CannotRunHereError, UnknownNameError
from allranks.local import processes
from allranks.local.event_folders import EventCurves, event_places
from allranks.local.folders import RunFolder
from allranks.local.record_shapes import read_json_file
from allranks.local.tracking.export import export_to_mlflow

_LOOPBACK = "127.0.0.1"
_END_SECONDS = 10.0
_TOKEN_VARIABLE = "ALLRANKS_TOKEN"  # noqa: S105 its name
_TENSORBOARD = f"""
import os, sys
sys.argv += ["--path_prefix", "/" + os.environ.pop({_TOKEN_VARIABLE!r})]
from tensorboard.main import run_main
run_main()
"""
"""Starts TensorBoard below a secret path, which stands in no command line: TensorBoard itself asks for no token."""


def show_in_tensorboard(run: RunFolder) -> int:
    """Start TensorBoard on the event files of a run's steps, and wait until it is ended; gives its exit code.

    Raises:
        CannotRunHereError: it is not installed.
        UnknownNameError: there are no event files.
    """
    _check_installed("tensorboard", "TensorBoard")
    places = [place for name in steps_and_trials(run) for place in _places_with_events(run, name)]
    if not places:
        hint = "TensorBoard's files are looked for in outputs, and in outputs/, logs/ and runs/ of the working folder."
        raise UnknownNameError(f"run {run.id} has no event files (events.out.tfevents.*).", hint)
    with tempfile.TemporaryDirectory(prefix="allranks-") as folder:  # links, since a reused step lies in another run
        for name, place in places:
            link = Path(folder, name)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(place.resolve())
        token = {_TOKEN_VARIABLE: secrets.token_urlsafe(24)}
        return _wait_for_tool(["-c", _TENSORBOARD, "--logdir", folder, "--host", _LOOPBACK, "--load_fast=false"], token)


def show_in_mlflow(run: RunFolder) -> int:
    """Start MLflow's pages on what all runs of a runs folder have logged until now; gives their exit code.

    Raises:
        CannotRunHereError: MLflow is not installed, or only a part of it.
    """
    _check_installed("mlflow", "MLflow")
    with tempfile.TemporaryDirectory(prefix="allranks-") as folder:
        database = Path(folder, "mlflow.db")
        export_to_mlflow(run.home, Path(sys.executable), database)
        place = Path(folder, "mlflow.sock")
        with TokenProxy(place) as proxy:
            serving = threading.Thread(target=proxy.serve_forever, args=(0.2,), daemon=True)
            print(f"MLflow starts at {proxy.address}", flush=True)
            store = f"sqlite:///{database}"
            listens = ["--uvicorn-opts", f"--uds {place}", "--workers", "1"]
            server = ["-m", "mlflow", "server", "--backend-store-uri", store, *listens]
            return _wait_for_tool(server, started=serving.start)


def _check_installed(package: str, name: str) -> None:
    if find_spec(package) is None:
        message = f"{name} is not installed for {sys.executable}."
        raise CannotRunHereError(message, f"Install it: pip install {package}")


def _places_with_events(run: RunFolder, step: str) -> list[tuple[str, Path]]:
    """The folders with event files of a step or trial, each by the name that TensorBoard shows."""
    executed = run.executed(step)
    key = (read_json_file(executed.state) or {}).get("key", "")
    places = [place for place in event_places(run.home, executed, key) if EventCurves([place]).has_files()]
    named: dict[str, Path] = {}
    for place in places:
        named.setdefault(f"{step}/work/{place.name}" if place.parent == executed.work(0) else f"{step}/outputs", place)
    return list(named.items())


def _wait_for_tool(
    arguments: Sequence[str], variables: Mapping[str, str] | None = None, started: Callable[[], None] = lambda: None
) -> int:
    """Run this interpreter until it ends or Ctrl+C ends it, with the processes that it has started.

    ``started`` is called once it runs: threads of this process may begin then.

    It may take its time: MLflow's server does not always end when it is asked to.
    """
    dying = partial(processes.die_with, os.getpid())
    command = [sys.executable, *arguments]
    safe = {
        **os.environ,
        **(variables or {}),
        "PYTHONSAFEPATH": "1",
    }  # or a file mlflow.py in the working folder would be taken for it
    with subprocess.Popen(command, env=safe, preexec_fn=dying, start_new_session=True) as tool:  # noqa: PLW1509 one thread
        try:
            started()
            return tool.wait()
        except KeyboardInterrupt:
            tool.terminate()
            with suppress(subprocess.TimeoutExpired):
                tool.wait(_END_SECONDS)
            return 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(tool.pid, signal.SIGKILL)
