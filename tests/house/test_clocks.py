"""Tests read no clock: they wait for what happens, with `tests.waiting.wait_for`, and pytest-timeout bounds them."""

from __future__ import annotations

import re

from tests.helpers import ROOT

CLOCK = re.compile(
    r"\btime\.(sleep|time|time_ns)\b|\bmonotonic(_ns)?\b|\bperf_counter(_ns)?\b|\bprocess_time\b|\bfrom time import\b"
)
ALLOWED = {
    "tests/azure/stand_in/fixture.py": "still waits or measures",
    "tests/azure/stand_in/identity.py": "still waits or measures",
    "tests/azure/stand_in/server.py": "still waits or measures",
    "tests/azure/test_register_faults.py": "still waits or measures",
    "tests/blob_mount.py": "emulates a mount whose listings and closes are late",
    "tests/components/launched.py": "still waits or measures",
    "tests/components/test_full_disk.py": "still waits or measures",
    "tests/components/test_ill_storage.py": "still waits or measures",
    "tests/components/test_order_of_rows.py": "still waits or measures",
    "tests/components/test_prepare_bad_files.py": "still waits or measures",
    "tests/components/test_prepare_text.py": "still waits or measures",
    "tests/components/test_stopped_rank.py": "still waits or measures",
    "tests/drill/test_drill.py": "still waits or measures",
    "tests/gpu/test_on_a_gpu.py": "still waits or measures",
    "tests/local/containers/test_containers.py": "still waits or measures",
    "tests/local/environments/test_step_environment.py": "still waits or measures",
    "tests/local/test_faults.py": "still waits or measures",
    "tests/local/test_foreign_pipelines.py": "still waits or measures",
    "tests/local/test_foreign_scripts.py": "still waits or measures",
    "tests/local/test_half_done.py": "still waits or measures",
    "tests/local/test_launchers.py": "still waits or measures",
    "tests/local/test_logged.py": "still waits or measures",
    "tests/local/test_mpi_per_node.py": "still waits or measures",
    "tests/local/test_parallel.py": "still waits or measures",
    "tests/local/test_processes.py": "still waits or measures",
    "tests/local/test_resources.py": "still waits or measures",
    "tests/local/test_restarts.py": "still waits or measures",
    "tests/local/test_run.py": "still waits or measures",
    "tests/local/test_stopped_ranks.py": "still waits or measures",
    "tests/local/test_temporary.py": "still waits or measures",
    "tests/local/tracking/test_server.py": "still waits or measures",
    "tests/shared/distributed/test_control.py": "still waits or measures",
    "tests/shared/distributed/test_liveness.py": "still waits or measures",
    "tests/shared/distributed/test_two_jobs.py": "still waits or measures",
    "tests/shared/distributed/test_world.py": "still waits or measures",
    "tests/shared/test_checkpoint.py": "still waits or measures",
    "tests/shared/test_failing_rank.py": "still waits or measures",
    "tests/shared/test_full_storage.py": "still waits or measures",
    "tests/shared/test_sharded_checkpoint.py": "still waits or measures",
    "tests/shared/test_stopping.py": "still waits or measures",
    "tests/shared/test_time_split.py": "still waits or measures",
    "tests/shared/test_tracking.py": "still waits or measures",
    "tests/shared/test_waits.py": "still waits or measures",
    "tests/waiting.py": "has the only poll",
}
"""Files that read a clock or sleep, each with the reason."""


def test_no_test_reads_a_clock() -> None:
    found = {
        file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("*.py") if CLOCK.search(file.read_text())
    }
    assert sorted(found - ALLOWED.keys()) == [], "wait with tests.waiting.wait_for, or pass a clock to what measures"
    assert sorted(ALLOWED.keys() - found) == [], "these files no longer need their lines in ALLOWED"
