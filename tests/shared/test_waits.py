"""How long a rank waits for one that hangs: step_timeout, in whatever group of whatever framework."""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.checkpoint import reading
from shared.distributed import WaitTimeoutError, World, horovod_group, init, world
from shared.training.core.run import TrainingRun
from tests.helpers import ROOT, clean_environment, run_ranks
from tests.shared.distributed.threads import on_ranks

Hang = Callable[[], Any]


def list_checkpoints(world: World, hang: Hang, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reading, "checkpoints_newest_first", lambda _: hang())
    next(reading.checkpoints_to_try(world, Path("checkpoints"), None))


def agree_on_damage(world: World, hang: Hang, patch: pytest.MonkeyPatch) -> None:
    del patch
    if world.is_main:
        world.collect(None, "is step-00000001 whole")
        hang()
    reading.agree_on_damage(world, Path("step-00000001"), None)


def save_model(world: World, hang: Hang, patch: pytest.MonkeyPatch) -> None:
    del patch
    TrainingRun.save_model(SimpleNamespace(_world=world), hang)  # type: ignore[arg-type]


@pytest.mark.parametrize("action", [list_checkpoints, agree_on_damage, save_model])
def test_who_waits_for_what_rank_0_does_alone_names_it(
    action: Callable[[World, Hang, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "SOLO_SECONDS", 2)
    ended = threading.Event()

    def act(member: World) -> None:
        try:
            action(member, ended.wait, monkeypatch)
        finally:
            ended.set()

    waited = on_ranks(2, act, step_timeout=2)[1]
    assert isinstance(waited, WaitTimeoutError)
    assert str(waited).endswith("timed out waiting for rank 0.")


def test_whatever_a_trainer_does_on_one_rank_has_a_limit() -> None:
    endless = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for folder in ("shared", "components")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if ".once(" in (source := path.read_text())
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "once"
        if "timeout" not in {keyword.arg for keyword in call.keywords}
    ]
    assert endless == []


@pytest.mark.slow
def test_step_timeout_counts_in_groups_that_a_framework_has_made_itself(tmp_path: Path) -> None:
    code = """
    from datetime import timedelta
    from pathlib import Path
    import torch
    import torch.distributed as dist
    from shared.distributed import init
    from shared.training.torch.start import limit_collectives
    from tests.waiting import wait_for

    with init("torch", timeout=timedelta(minutes=5)) as world:
        group = dist.new_group([0, 1])  # as DeepSpeed does
        limit_collectives(timedelta(seconds=1))
        if world.rank == 1:
            wait_for(Path("given up").exists)
        else:
            try:
                dist.all_reduce(torch.ones(1), group=group)
            except RuntimeError as error:
                print(error)
            Path("given up").touch()
        raise SystemExit(3)
    """
    assert "Timed out waiting 1000ms" in run_ranks(code, cwd=tmp_path)[0].stdout


def test_horovod_is_told_step_timeout_when_it_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[str] = []
    fake = SimpleNamespace(rank=lambda: 0, size=lambda: 1, shutdown=lambda: None)
    fake.init = lambda: told.append(os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"])
    monkeypatch.setattr(horovod_group, "_horovod", lambda _: fake)
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as environment:
        environment.setattr(os, "environ", clean_environment())
        with init("horovod", timeout=timedelta(minutes=5), step_timeout=timedelta(seconds=7)):
            pass
    assert told == ["7"]
