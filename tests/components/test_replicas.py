"""Ranks whose weights differ are found by digests of the weights."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import run_ranks


@pytest.mark.slow
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


@pytest.mark.slow
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
