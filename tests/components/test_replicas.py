"""Every trainer whose ranks hold whole weights ends where one rank's weights differ, and saves no model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.components.launched import launched
from tests.components.test_stop_in_validation import STEPS, arranged
from tests.helpers import finish, run_ranks

# After the last step of an epoch: the ranks of ZeRO exchange their weights in each step.
SPOILT = f"""from shared.training.core.run import TrainingRun
        end_step = TrainingRun.end_step
        def spoil(run):
            saver = run._saver
            if run._world.rank == 1 and run.at.step == {STEPS - 1}:
                if hasattr(saver, "model"):
                    weight = saver.model.trainable_variables[-1]
                    weight.assign(weight + 1e-3)
                    name = weight.path
                else:
                    owner = getattr(saver, "trainer", None) or getattr(saver, "_trainer", None)
                    owner = owner or getattr(saver, "engine", saver)
                    module = getattr(owner, "lightning_module", None) or getattr(owner, "model", None) or owner.module
                    name, weight = list(module.named_parameters())[-1]
                    weight.data.view(-1)[-1] += 1e-3
                print(f"SPOILT {{name}} END", flush=True)
            return end_step(run)
        TrainingRun.end_step = spoil"""

CASES = [
    ("train_ddp", {}),
    ("train_torchrun", {}),
    ("train_lightning", {}),
    ("train_transformers", {"sharding": "none"}),
    ("train_transformers", {"sharding": "deepspeed"}),
    ("train_deepspeed", {"zero_stage": 0}),
    ("train_deepspeed", {"zero_stage": 2}),
    ("train_horovod", {}),
    ("train_horovod_keras", {}),
    ("train_tf_multiworker", {}),
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("trainer", "more"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in CASES[1:])],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())) or "plain",
)
def test_a_rank_whose_weights_differ_is_named_with_the_weight(
    trainer: str, more: dict[str, object], tmp_path: Path
) -> None:
    data, options = arranged(trainer, tmp_path, share=0.001)
    out = tmp_path / "out"
    with launched(trainer, data, out, {**options, **more}, before=SPOILT) as ranks:
        results = finish(ranks)
    told = "".join(result.stdout + result.stderr for result in results)
    name = told.partition("SPOILT ")[2].partition(" END")[0]
    assert name, told[-3000:]
    said = f"The weights of rank 1 are not those of rank 0 after step {STEPS}, first {name}: its digest is "
    assert told.count(said) == 1, told[-3000:]
    assert any(result.returncode for result in results)
    assert "Error: The weights" not in told, "no traceback"
    assert not list((out / "model").glob("*"))


def test_the_ranks_that_differ_from_most_others_are_named() -> None:
    code = """
        from shared.distributed import init
        from shared.training.core.run import check_same_weights
        with init() as world:
            check_same_weights(world, [("a", "1"), ("b", "2")], 4)
            print("same", flush=True)
            check_same_weights(world, [("a", "1"), ("b", "345"[world.rank > 0])], 5)
    """
    results = run_ranks(code, processes=3)
    assert [result.returncode for result in results] == [1, 1, 1]
    assert [result.stdout for result in results] == ["same\n"] * 3
    told = "".join(result.stderr for result in results)
    assert (
        told.count(
            "The weights of rank 0 are not those of rank 1 after step 5, first b: its digest is 3 on rank 0, 4 on"
        )
        == 1
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.float8_e4m3fn])
def test_each_bit_counts_in_a_digest(dtype: torch.dtype) -> None:
    from shared.training.torch.state import weight_digests

    module, more = torch.nn.Module(), 2**20 + 3  # more than one piece, in words that are not full
    module.whole = torch.nn.Parameter(torch.zeros(more).to(dtype))
    module.odd = torch.nn.Parameter(torch.zeros(more).to(dtype)[1:])  # as in a flat buffer: not where a word begins
    module.none = torch.nn.Parameter(torch.zeros(0, 2).to(dtype))
    module.still = torch.nn.Parameter(torch.zeros(2).to(dtype), requires_grad=False)
    module.own = torch.nn.Parameter(torch.zeros(2).to(dtype))
    vars(module)["_ddp_params_and_buffers_to_ignore"] = ["own"]
    module.register_buffer("counted", torch.zeros(2))
    before, state = weight_digests(module), torch.get_rng_state()
    assert [name for name, _ in before] == ["whole", "odd", "none"]
    for place in (0, 2**19, more - 2):
        bits = module.odd.data.view(torch.uint8)
        bits[place * dtype.itemsize] ^= 1
        assert [one == other for one, other in zip(before, weight_digests(module), strict=True)] == [True, False, True]
        bits[place * dtype.itemsize] ^= 1
    assert weight_digests(module) == before
    assert torch.equal(torch.get_rng_state(), state)
