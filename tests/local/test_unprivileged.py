"""Who is not root, as most people are: where CI runs these tests as root, they become somebody else first."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.local.support import command, environ

IS_ROOT = os.geteuid() == 0
SOMEBODY = ("unshare", "--user", "--map-user=1000", "--map-group=1000") if IS_ROOT else ()
WITHOUT_RIGHTS = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if IS_ROOT else ()
"""As in a container: no host name can be given, not in a namespace of users either."""


def can_be(prefix: tuple[str, ...]) -> bool:
    return not prefix or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0


as_somebody = pytest.mark.skipif(not can_be(SOMEBODY), reason="root can be nobody else here")
as_powerless = pytest.mark.skipif(not IS_ROOT or not can_be(WITHOUT_RIGHTS), reason="root cannot give up its rights")
WHERE = """
import os
print(os.environ["PMIX_HOSTNAME"], os.environ["OMPI_COMM_WORLD_LOCAL_RANK"], os.getuid())
print([name for name in os.environ if "SLURM" in name or "NAMED" in name])
"""


@pytest.mark.parametrize(
    ("prefix", "user"),
    [
        pytest.param(SOMEBODY, 1000 if IS_ROOT else os.getuid(), marks=as_somebody, id="somebody"),
        pytest.param(WITHOUT_RIGHTS, 0, marks=as_powerless, id="root without rights"),
    ],
)
def test_mpirun_starts_its_nodes_and_tells_them_apart(tmp_path: Path, prefix: tuple[str, ...], user: int) -> None:
    """Its daemon refuses to run as root, also as who is root only in a namespace of its own."""
    (tmp_path / "where.py").write_text(WHERE)
    arguments = command("run", "where.py", "--scale", "2x2", "--distribution", "mpi", "--json")
    done = subprocess.run([*prefix, *arguments], cwd=tmp_path, env=environ(), capture_output=True, check=False)
    found = json.loads(done.stdout)
    assert found["status"] == "succeeded", found["steps"]["where"]["failure"]
    logs = sorted(Path(found["run_dir"]).glob("steps/where/user_logs/std_log*"))
    assert [log.read_text().splitlines() for log in logs] == [
        [f"node{node} {rank} {user}", "[]"] for node in (0, 1) for rank in (0, 1)
    ]


@pytest.mark.slow
@pytest.mark.exhaustive
@as_powerless
def test_horovod_finds_its_neighbours_without_host_names(tmp_path: Path) -> None:
    """With one name for all nodes it waited for ever: ranks of another node were taken for neighbours."""
    (tmp_path / "sums.py").write_text(SUMS)
    arguments = command("run", "sums.py", "--scale", "2x2", "--distribution", "mpi", "--json")
    done = subprocess.run([*WITHOUT_RIGHTS, *arguments], cwd=tmp_path, env=environ(), capture_output=True, check=False)
    found = json.loads(done.stdout)
    assert found["status"] == "succeeded", found["steps"]["sums"]["failure"]
    logs = sorted(Path(found["run_dir"]).glob("steps/sums/user_logs/std_log*"))
    assert [log.read_text() for log in logs] == [f"{rank} 2 6.0\n" for rank in (0, 1, 0, 1)]


SUMS = """
import horovod.torch as hvd
import torch
hvd.init()
print(hvd.local_rank(), hvd.local_size(), hvd.allreduce(torch.tensor(1.0 * hvd.rank()), op=hvd.Sum).item())
"""
