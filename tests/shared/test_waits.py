"""How long a rank waits for one that hangs: step_timeout, in whatever group of whatever framework."""

from __future__ import annotations

from tests.helpers import run_ranks


def test_step_timeout_counts_in_groups_that_a_framework_has_made_itself() -> None:
    code = """
    import time
    from datetime import timedelta
    import torch
    import torch.distributed as dist
    from shared.distributed import init
    from shared.training.torch.start import limit_collectives

    with init("torch", timeout=timedelta(minutes=5)) as world:
        group = dist.new_group([0, 1])  # as DeepSpeed does
        limit_collectives(timedelta(seconds=1))
        if world.rank == 1:
            time.sleep(6)
        else:
            began = time.monotonic()
            try:
                dist.all_reduce(torch.ones(1), group=group)
            except RuntimeError:
                print("gave up after", round(time.monotonic() - began))
        raise SystemExit(3)
    """
    assert run_ranks(code)[0].stdout in {f"gave up after {seconds}\n" for seconds in (1, 2, 3)}


def test_horovod_is_told_step_timeout_when_it_starts() -> None:
    code = """
    import os
    from datetime import timedelta
    from shared.distributed import init

    with init("horovod", timeout=timedelta(minutes=5), step_timeout=timedelta(seconds=7)):
        print(os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"])
    """
    (result,) = run_ranks(code, processes=1)
    assert result.stdout == "7\n", result.stderr
