"""Checkpoints of ranks one of whose nodes can write nothing: all ranks know of it, and go on."""

from __future__ import annotations

from pathlib import Path

from shared.checkpoint.files import find_damage
from tests.helpers import run_ranks

ONE_NODE = """
import resource
from datetime import timedelta
from pathlib import Path
import numpy as np
from shared.checkpoint.tensor_file import ShardPart
from shared.checkpoint.saving import CheckpointEngine
from shared.distributed import init

with init() as world:
    engine = CheckpointEngine(world, Path("checkpoints"), timedelta(seconds=20))
    for step in (1, 2, 3, 4):
        full = world.node_rank == 1 and step in (2, 3)
        limit = 65536 if full else resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        half = np.full(2**16, float(step))
        engine.save(step, [ShardPart("w", half, (2**17,), (2**16 * world.rank,))], {"step": step})
        engine.wait()
        print(step, engine.failed_saves, engine.failure is None, flush=True)
    engine.close()
"""


def test_where_one_node_can_write_nothing_all_ranks_know_that_no_checkpoint_was_made(tmp_path: Path) -> None:
    results = run_ranks(ONE_NODE, nodes=2, processes=1, cwd=tmp_path)
    said = [[line for line in result.stdout.splitlines() if line[:1].isdigit()] for result in results]
    assert said[0] == said[1] == ["1 0 True", "2 1 False", "3 2 False", "4 2 True"]
    text = results[0].stdout + results[0].stderr
    assert text.count("did not take it (File too large); training goes on") == 2
    assert "step 3 was not saved" in text
    kept = sorted((tmp_path / "checkpoints").glob("step-*"))
    assert [path.name for path in kept] == ["step-00000001", "step-00000004"]
    assert all(find_damage(path, whole=True) is None for path in kept)
