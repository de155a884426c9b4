"""A rank that is stopped ends its step, whatever the script knows of us."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.local.support import pipeline, run_json, step

STOPS = """
import os, signal, time
if os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["pytorch", pytest.param("mpi", marks=pytest.mark.slow)])
def test_a_stopped_rank_of_a_foreign_script_is_named(kind: str, tmp_path: Path) -> None:
    (tmp_path / "stops.py").write_text(STOPS)
    train = step(f"python {tmp_path}/stops.py", more=f"distribution: {{type: {kind}, process_count_per_instance: 2}}")
    began = time.monotonic()
    failure = run_json(pipeline(tmp_path, f"type: pipeline\njobs: {{train: {train}}}\n"), cwd=tmp_path)["steps"][
        "train"
    ]["failure"]
    assert failure["message"] == (
        "rank 1 on node 0 was ended: it stands still: its process was stopped 8 s ago, and nobody has continued it"
    )
    assert time.monotonic() - began < 30, "10 s on a machine of its own"
