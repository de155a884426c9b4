"""The ranks as a grid: which of them share the data, each layer, and the layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from shared.distributed import World
from shared.training.fsdp.layout import RankLayout

PIPELINE, DATA, TENSOR = "pipeline", "data", "tensor"


@dataclass(frozen=True, slots=True)
class RankMesh:
    """This rank's place among all ranks; made by `make_mesh`. `devices` is torch's own mesh, in three dimensions."""

    layout: RankLayout
    devices: DeviceMesh

    @property
    def data_rank(self) -> int:
        """Which rows of a batch are this rank's."""
        return self.devices[DATA].get_local_rank()

    @property
    def tensor_rank(self) -> int:
        """Which part of each layer is this rank's."""
        return self.devices[TENSOR].get_local_rank()

    @property
    def stage(self) -> int:
        """Which of the pipeline's stages is this rank's."""
        return self.devices[PIPELINE].get_local_rank()

    @property
    def pipelined(self) -> bool:
        """Whether the layers are divided among the stages of a pipeline."""
        return self.layout.pipeline_parallel > 1

    @property
    def is_first_stage(self) -> bool:
        """Whether the tokens come here."""
        return self.stage == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether the logits are computed here."""
        return self.stage == self.layout.pipeline_parallel - 1

    def neighbour(self, distance: int) -> int:
        """Rank that has the stage so many after (or, if negative, before) this one's, for the same rows."""
        return dist.get_global_rank(self.devices[PIPELINE].get_group(), self.stage + distance)


def make_mesh(layout: RankLayout, world: World) -> RankMesh:
    """Make the grid, tensor parallelism innermost: it talks most, and neighbouring ranks are on one node."""
    shape = (layout.pipeline_parallel, layout.data_parallel, layout.tensor_parallel)
    return RankMesh(layout, init_device_mesh(world.device.type, shape, mesh_dim_names=(PIPELINE, DATA, TENSOR)))
