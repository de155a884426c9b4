"""A step of so many ranks that nobody looks at each: which one has failed is seen at once, on terminal and page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.local.folders import RunsHome
from tests.local.support import allranks, environ, pipeline, step
from tests.waiting import TIMEOUT

UNREFUSED = """\
import sys
from allranks.cli import live
from allranks.cli.main import main

live.refuse_crowded = lambda plan: None  # a shell needs no 100 MB
sys.argv[0] = "allranks"
sys.exit(main())
"""


def run_many(folder: Path, nodes: int, each: int, failing: int) -> subprocess.CompletedProcess[str]:
    """Run so many shells as ranks, of which one fails."""
    script = f'echo rank $RANK; [ $RANK != {failing} ] || {{ echo "ValueError: a broken disk" >&2; exit 3; }}; sleep 60'
    more = (
        f"distribution: {{type: pytorch, process_count_per_instance: {each}}}, resources: {{instance_count: {nodes}}}"
    )
    pipeline(folder, f"type: pipeline\njobs:\n  train: {step(script, more=more)}\n")
    called = [sys.executable, "-c", UNREFUSED, "run", "pipeline.yaml"]
    return subprocess.run(
        called, cwd=folder, env=environ(), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "each", "failing", "most"),
    [(32, 2, 41, 300_000), pytest.param(128, 8, 777, 1_500_000, marks=pytest.mark.exhaustive)],
)
def test_the_rank_that_failed_among_many_is_seen_at_once(
    nodes: int, each: int, failing: int, most: int, tmp_path: Path
) -> None:
    done = run_many(tmp_path, nodes, each, failing)
    node, log = failing // each, f"std_log_process_{failing}.txt"
    assert done.returncode == 1, done.stderr
    assert f"error: step train: rank {failing} on node {node} ended with exit code 3" in done.stderr
    assert "ValueError: a broken disk" in done.stderr
    assert len((done.stdout + done.stderr).splitlines()) < nodes * each + 60, "a line of each rank, and the end"
    run = RunsHome(tmp_path / ".allranks").find("latest")
    page = run.report.read_text()
    assert len(page) < most
    assert re.search(rf'<pre id="log-train-{re.escape(log)}"[^>]*>rank {failing}\nValueError: a broken disk', page)
    told = allranks("runs", "logs", "latest", "train", cwd=tmp_path)
    assert f"runs logs {run.id} train --rank {failing}" in told.stderr
    shown = allranks("runs", "show", "latest", cwd=tmp_path)
    assert len(shown.stdout.splitlines()) < 30
