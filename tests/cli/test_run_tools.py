"""``allranks runs open --tensorboard`` and ``--mlflow``: the tool is started on what is there, or one message says why not."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from allranks.local.folders import RunsHome, write_json_file
from allranks.local.tracking.jobs import JobRuns
from allranks.local.tracking.points import log_metric
from allranks.local.tracking.store import TrackingStore
from tests.cli.conftest import Called
from tests.local.support import allranks, command, environ
from tests.waiting import TIMEOUT, wait_for

FILES = Path(__file__).parents[1] / "local/event_files"

STAND_IN = """\
import os, sys
print(sys.argv[1:])
logdir = sys.argv[sys.argv.index("--logdir") + 1]
for path, _, files in os.walk(logdir, followlinks=True):
    print(os.path.relpath(path, logdir), files)
sys.exit(5)
"""
"""In the place of TensorBoard, which our environments need not have."""


@pytest.fixture
def home(tmp_path: Path) -> RunsHome:
    """With a run of a step that logged, and one of another that reused it."""
    home = RunsHome(tmp_path / ".allranks")
    home.prepare()
    for run_id, steps in {"r1": ["train", "tune"], "r2": ["train"], "r3": ["train"]}.items():
        states = {name: {"status": "succeeded", "trials": [{"number": 0}] if name == "tune" else []} for name in steps}
        write_json_file(make(home, run_id), {"run_id": run_id, "status": "succeeded", "steps": states})
    train = home.run("r1").step("train")
    for place in (train.outputs / "model", train.work(0) / "runs/now", home.run("r1").step("tune.0").work(0) / "logs"):
        place.mkdir(parents=True)
        shutil.copy(FILES / "events.out.tfevents.torch", place)
    train.logs.mkdir()
    home.run("r2").step("train").path.mkdir(parents=True)
    home.run("r2").step("train").logs.symlink_to(train.logs)
    return home


def make(home: RunsHome, run_id: str) -> Path:
    home.run(run_id).path.mkdir()
    return home.run(run_id).state


@pytest.mark.slow
def test_tensorboard_gets_the_event_files_of_steps_and_trials_by_name(home: RunsHome, tmp_path: Path) -> None:
    package = tmp_path / "packages/tensorboard"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "main.py").write_text(STAND_IN)
    path = f"{environ()['PYTHONPATH']}{os.pathsep}{package.parent}"
    done = allranks("runs", "open", "r1", "--tensorboard", cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 5, "that of the tool"
    assert "'--host', '127.0.0.1'" in done.stdout
    assert re.search(r"'--path_prefix', '/[\w-]{32}'", done.stdout), "which others do not know"
    holding = re.findall(r"^(\S+) \['events", done.stdout, re.MULTILINE)
    assert sorted(holding) == ["train/outputs/model", "train/work/runs/now", "tune.0/work/logs"]
    done = allranks("runs", "open", "r2", "--tensorboard", cwd=tmp_path, PYTHONPATH=path)
    assert "train/outputs/model ['events" in done.stdout, "a reused step has those of the step that it was"
    done = allranks("runs", "open", "r3", "--tensorboard", cwd=tmp_path, PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "run r3 has no event files" in done.stderr


@pytest.mark.parametrize(("option", "package"), [("--tensorboard", "tensorboard"), ("--mlflow", "mlflow")])
def test_a_tool_that_is_not_installed_is_one_message(
    cli: Callable[..., Called], home: RunsHome, monkeypatch: pytest.MonkeyPatch, option: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    called = cli("runs", "open", "r1", option, "--runs-dir", str(home.path))
    assert (called.code, called.out) == (2, "")
    assert "is not installed" in called.err
    assert f"pip install {package}" in called.err


MLFLOW = """\
import json, sys
from http.server import BaseHTTPRequestHandler
from socketserver import UnixStreamServer
store, place = (sys.argv[sys.argv.index(option) + 1] for option in ("--backend-store-uri", "--uvicorn-opts"))

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.do_GET()
        self.wfile.write(json.dumps([self.path, body, open(store.removeprefix("sqlite:///")).read()]).encode())

    def log_message(self, *_):
        pass

UnixStreamServer(place.removeprefix("--uds "), Handler).serve_forever()
"""
"""In the place of MLflow, whose import takes seconds; tests/local/tracking/test_export.py has what is exported."""
WITHOUT_EXPORT = """\
import sys
from allranks.cli import main, run_tools
run_tools.export_to_mlflow = lambda home, python, database: database.write_text(f"runs of {home.path.absolute()}")
sys.exit(main.main(sys.argv[1:]))
"""


def test_mlflow_serves_what_is_exported_on_loopback_until_ctrl_c(home: RunsHome, tmp_path: Path) -> None:
    (tmp_path / "packages/mlflow").mkdir(parents=True)
    (tmp_path / "packages/mlflow/__init__.py").touch()
    (tmp_path / "packages/mlflow/__main__.py").write_text(MLFLOW)
    variables = environ(PYTHONPATH=f"{environ()['PYTHONPATH']}{os.pathsep}{tmp_path / 'packages'}")
    with opened([sys.executable, "-c", WITHOUT_EXPORT, "runs", "open", "r1", "--mlflow"], tmp_path, variables) as tool:
        assert tool.stdout is not None
        address = tool.stdout.readline().split()[-1]
        root, token = address.rsplit("/", 1)
        request = urllib.request.Request(f"{root}/api?a=1", b"body")  # noqa: S310 on loopback
        assert [status(one) for one in (request, f"{root}/", f"{root}/{token}x")] == [401] * 3, "without the token"
        other = urllib.request.Request(address, headers={"Host": "evil.test"})  # noqa: S310
        assert status(other) == 421
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        found: object = wait_for(lambda: answer(opener, address, request), running=[tool])
        assert found == ["/api?a=1", "body", f"runs of {home.path}"]
        assert token not in Path(f"/proc/{tool.pid}/cmdline").read_text()


@contextmanager
def opened(arguments: Sequence[str], cwd: Path, variables: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a command that shows a tool; at the end Ctrl+C has to end both with exit code 0."""
    heard = partial(signal.signal, signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    with subprocess.Popen(
        arguments, cwd=cwd, env=variables, stdout=subprocess.PIPE, text=True, preexec_fn=heard
    ) as tool:
        try:
            yield tool
        finally:
            tool.send_signal(signal.SIGINT)
            assert tool.wait(TIMEOUT) == 0


@pytest.mark.slow
@pytest.mark.exhaustive
def test_mlflow_shows_the_runs_of_the_folder(home: RunsHome, tmp_path: Path) -> None:
    jobs = JobRuns(home, "r1", "digits", "tune digits")
    jobs.begin()
    log_metric(TrackingStore(home), {"run_id": jobs.begin_step("train"), "key": "loss", "value": 0.5, "timestamp": 1})
    with opened(command("runs", "open", "r1", "--mlflow"), tmp_path, environ()) as tool:
        assert tool.stdout is not None
        address = tool.stdout.readline().split()[-1]
        root, token = address.rsplit("/", 1)
        body = json.dumps({"experiment_ids": ["1"], "filter": "metrics.loss = 0.5"}).encode()
        request = urllib.request.Request(  # noqa: S310 on loopback
            f"{root}/api/2.0/mlflow/runs/search", body, {"Content-Type": "application/json"}
        )
        assert status(request) == 401, "without the token"
        assert status(f"{root}/{token}x") == 401
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        found = wait_for(lambda: answer(opener, address, request), running=[tool])
        assert token not in Path(f"/proc/{tool.pid}/cmdline").read_text()
        assert [run["data"]["metrics"][0]["value"] for run in found["runs"]] == [0.5]


def status(request: str | urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:  # noqa: S310
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def answer(opener: urllib.request.OpenerDirector, address: str, request: urllib.request.Request) -> Any:
    """Return what MLflow answers who has opened the address; {} while it starts."""
    try:
        opener.open(address, timeout=TIMEOUT).close()
        with opener.open(request, timeout=TIMEOUT) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        if error.code != 502:
            raise
        return {}
