"""Standard streams that are closed, as daemons and wrappers leave them, and a tracking server that cannot start."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.local.support import allranks, command, environ, run_json
from tests.local.test_logged import CLIENT

CLOSED = ["<&-", "<&- >&- 2>&-"]
LOGS = f"{CLIENT}\npost('log-metric', key='seen', value=3, timestamp=1)\n"


@pytest.mark.parametrize("closed", CLOSED)
def test_a_run_logs_its_metrics(closed: str, tmp_path: Path) -> None:
    (tmp_path / "logs.py").write_text(LOGS)
    line = f"exec {shlex.join(command('run', 'logs.py'))} {closed}"
    assert subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environ(), check=False).returncode == 0
    (state,) = tmp_path.glob(".allranks/runs/*/run.json")
    assert json.loads(state.read_text())["steps"]["logs"]["metrics"]["seen"] == 3
    assert not (state.parent / "tracking.txt").read_text()


@pytest.mark.slow
def test_a_tracking_server_that_cannot_start_is_named_and_fails_clients_at_once(tmp_path: Path) -> None:
    """MLflow retries other errors for minutes, with pauses that double."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/sitecustomize.py").write_text(
        "import sys\nif 'allranks.local.tracking.server' in ' '.join(sys.orig_argv): sys.exit('no room')\n"
    )
    (tmp_path / "logs.py").write_text("import mlflow\nmlflow.log_metric('seen', 3)\n")
    broken = environ(PYTHONPATH=f"{tmp_path / 'broken'}:{ROOT}")
    done = subprocess.run(
        command("run", "logs.py"), cwd=tmp_path, env=broken, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "note: The tracking server could not start: SystemExit: no room (log: " in done.stderr
    assert "RestException: INTERNAL_ERROR: The tracking server could not start" in done.stderr
    (tmp_path / "logs.py").write_text(LOGS)
    assert run_json("logs.py", cwd=tmp_path)["steps"]["logs"]["metrics"] == {"seen": 3}
    assert "seen" in allranks("runs", "show", "latest", cwd=tmp_path).stdout
