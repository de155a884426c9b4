"""A model in parts is the same model: its first values, outputs, gradients, clipping, and what is put together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import run_ranks

CODE = """
    from dataclasses import replace
    from pathlib import Path
    import torch
    from torch.nn import functional
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from shared.distributed import init
    from shared.models import DecoderModel, DecoderSettings
    from shared.models.decoder import initialise_decoder
    from shared.settings.sharding import ParallelSettings
    from shared.training.fsdp.layout import RankLayout
    from shared.training.fsdp.mesh import DATA, make_mesh
    from shared.models.llama import llama_name, llama_tensors
    from shared.models.weight_files import WeightReader
    from shared.training.fsdp.model import materialise_stage, owned_parts
    from shared.training.fsdp.optimization import clip_gradients
    from shared.training.fsdp.pieces import pieces_of
    from shared.training.fsdp.tensor_parallel import divide_layers
    from shared.training.torch.saved_decoder import write_weights

    torch.set_default_dtype(torch.float64)
    sizes = DecoderSettings(37, 8, layers=2, width=20, heads=2)  # 37 tokens and norms of 20 do not divide evenly
    whole = initialise_decoder(DecoderModel(sizes).double(), 5)
    torch.manual_seed(0)
    tokens = torch.randint(0, 37, (4, 9))

    def loss_of(module, rows):
        return functional.cross_entropy(module(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    class DividedOperations(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            assert not any(issubclass(kind, DTensor) for kind in types), function  # each takes tens of microseconds
            return function(*args, **(kwargs or {}))

    with init("torch") as world:
        mesh = make_mesh(RankLayout(2, 2, 1), world)
        module = DecoderModel(sizes).double()
        divide_layers(module, mesh)
        if world.rank == 0:  # it takes seconds for each block and rank
            module.blocks["0"].compile(backend="aot_eager")
        for part in (*module.blocks.values(), module):
            fully_shard(part, mesh=mesh.devices[DATA])
        materialise_stage(module, 5, world)

        places = [[name, piece.owned, [[s.start, s.stop] for s in piece.slices]] for name, _, piece in pieces_of(module)]
        count = {name: torch.zeros_like(parameter) for name, parameter in whole.named_parameters()}
        for rank in world.gather(places, "places"):
            for name, owned, slices in rank:
                count[name][tuple(slice(*pair) for pair in slices)] += owned
        assert all((seen == 1).all() for seen in count.values())  # each element is answered for by one rank

        for _ in range(2):
            loss_of(whole, tokens).backward()
            loss_of(module, tokens.chunk(2)[mesh.data_rank]).backward()
        torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.3)
        with DividedOperations():
            clip_gradients(module, 0.3, world)
        for (name, one), (_, part) in zip(whole.named_parameters(), module.named_parameters(), strict=True):
            torch.testing.assert_close(part.grad.full_tensor(), one.grad, rtol=1e-9, atol=1e-12)

        tensors = llama_tensors(sizes, torch.float64)
        parts = [replace(part, name=llama_name(part.name)) for part in owned_parts(module)]
        files = write_weights(Path("."), tensors, parts, 9000, world)
        assert len(files) > 4
        if world.is_main:
            assert {file.name for file in files} <= {path.name for path in Path(".").iterdir()}
            for file in files:
                Path(file.name).rename("model.safetensors")
                reader = WeightReader(Path("."))
                assert set(reader.shapes) == {tensor.name for tensor in file.tensors}
                for name, one in whole.named_parameters():
                    if llama_name(name) in reader.shapes:
                        read = torch.empty_like(one)
                        reader.read(llama_name(name), read, (0, 0)[: one.ndim])
                        assert torch.equal(one, read), name
        print("the same")
"""


@pytest.mark.slow
def test_a_model_in_parts_is_the_same_model(tmp_path: Path) -> None:
    results = run_ranks(CODE, processes=4, cwd=tmp_path)
    assert [result.stdout.splitlines()[-1:] for result in results] == [["the same"]] * 4, results[0].stderr
