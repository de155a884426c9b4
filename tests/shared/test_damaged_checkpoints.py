"""Checkpoints that are found damaged while a model is filled from them: all ranks go on to the one before."""

from __future__ import annotations

from pathlib import Path

from tests.helpers import run_ranks

CODE = """
    import sys
    from datetime import timedelta
    from pathlib import Path
    import torch
    from shared.checkpoint.files import KeepRule
    from shared.checkpoint.tensor_file import ShardPart
    from shared.distributed import Refusal, init
    from shared.training.core.position import CheckpointPlan, CheckpointSaver, TrainingPosition

    class HalfSaver(CheckpointSaver):
        values = torch.zeros(4)

        def save(self, position):
            mine = self.values[2 * self.world.rank :][:2] + position.step
            part = ShardPart("x", mine, (4,), (2 * self.world.rank,))
            self.writer.save(position.step, [part], self._state(position))

        def _load(self, saved):
            half = self.values[2 * self.world.rank :][:2]
            saved.read("x", half, (2 * self.world.rank,))


    def damage(step, rank):
        (path,) = Path(f"checkpoints/step-{step:08d}").glob(f"rank-{rank:05d}-*.safetensors")
        content = bytearray(path.read_bytes())
        content[-33 - 1] ^= 1  # in the values: before the 32 bytes of their hash
        path.write_bytes(content)

    with init() as world:
        plan = CheckpointPlan(Path("checkpoints"), None, {}, timedelta(seconds=30), KeepRule(newest=4))
        saver = HalfSaver(plan, world)
        for step in (1, 2, 3, 4):
            saver.save(TrainingPosition(step=step))
        saver.finish()
        for damaged in ([(4, 1), (3, 0)], [(2, 0)], [(1, 1)]):
            if world.is_main:
                for step, rank in damaged:
                    damage(step, rank)
            world.barrier("damaged")
            again = HalfSaver(plan, world)
            try:
                print("from", again.restore().step, again.values.unique().tolist())
            except Refusal as refusal:
                print(refusal)
"""


def test_all_ranks_go_on_to_the_newest_that_fills_the_model(tmp_path: Path) -> None:
    results = run_ranks(CODE, processes=2, cwd=tmp_path)
    assert [result.returncode for result in results] == [0, 0], results[0].stderr
    for result in results:
        said = [line for line in result.stdout.splitlines() if not line.startswith("continuing")]
        assert said[:2] == ["from 2 [0.0, 2.0]", "from 1 [0.0, 1.0]"]
        assert "The last checkpoint that could be gone on from is damaged (checkpoints/step-00000002: " in said[2]
    assert results[0].stderr.count("step-00000004 is passed over: the sha256 of x in rank-00001-") == 3
