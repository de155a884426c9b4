"""What a world of many ranks costs the control plane for each of them, counted in messages and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from shared.distributed import World
from shared.distributed.control import Control
from shared.distributed.wire import encode_message
from shared.training.core.run import check_same_weights
from tests.shared.distributed.threads import on_ranks

HEARTBEAT = {"silent": 0, "steps": 1, "limit": 300, "longest": 300, "place": "/code/train.py:33 (loss)"}
OPERATIONS: tuple[Callable[[World], object], ...] = (
    lambda world: world.any(world.rank == 3, "any"),
    lambda world: world.max(world.rank, "max"),
    lambda world: world.barrier("barrier"),
    lambda world: world.once(lambda: 1, name="once in the job", scope="job"),
    lambda world: world.once(lambda: 1, name="once in each node"),
    lambda world: world.sum([1.0], "sum"),
    lambda world: world.collect(world.rank, "collect"),
    lambda world: world._control._ask({"op": "beat", "state": HEARTBEAT}, 60),
    lambda world: world.announce("x") if world.is_main else world.wait_for_announcement("x"),
    lambda world: check_same_weights(world, [("w", "0")], 1),
)


def costs_of(count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[str], Counter[str]]:
    """Messages and bytes of all ranks together, by operation."""
    messages, size, exchange = Counter[str](), Counter[str](), Control._ask_within

    def counted(control: Control, message: dict[str, Any], limit: float | None) -> Any:
        answer = exchange(control, message, limit)
        what = message.get("label", message["op"])
        messages[what] += 1
        size[what] += len(encode_message(message)) + len(encode_message({"ok": answer}))
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(Control, "_ask_within", counted)
        results = on_ranks(count, lambda world: [act(world) for act in OPERATIONS][:2], nodes=count // 8)
    assert results == [[True, count - 1]] * count
    return messages, size


@pytest.mark.parametrize("count", [128, pytest.param(512, marks=pytest.mark.exhaustive)])
def test_what_a_rank_costs_does_not_grow_with_their_number(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, few), (messages, many) = costs_of(16, monkeypatch), costs_of(count, monkeypatch)
    for what, size in many.items():
        assert messages[what] <= 2 * count, what
        assert size / count < 1.2 * few[what] / 16 + 60, what
