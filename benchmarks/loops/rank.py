"""One rank of a comparison: a trainer of ours and its counterpart, one after the other, in the same world."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from loops.cases import CASES, LoopCase  # noqa: E402
from loops.step_clock import StepClock, siblings_time  # noqa: E402

from shared.data import Dataset  # noqa: E402
from shared.distributed import World, init  # noqa: E402
from shared.settings.command_line import read_settings  # noqa: E402
from shared.training.core.batch_plan import plan_batches  # noqa: E402
from shared.training.core.stopping import end_service, serve_training  # noqa: E402

WAYS = ("ours", "theirs")
LAUNCH = dict(os.environ)


def main() -> None:
    """Measure a trainer's cases in so many rounds; rank 0 writes what each took, over all ranks, as JSON."""
    trainer, folder, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    cases = {title: case for title, case in CASES.items() if case.trainer == trainer}
    sys.path.insert(0, str(ROOT / "components" / trainer))
    component: Any = importlib.import_module(trainer)
    first = next(iter(cases.values()))
    with init(first.framework, backend=first.backend) as world:
        if first.launcher == "parameter server" and world.coordinator is None:
            serve_training(world)
            return
        found = {
            title: measure_rounds(component, case, folder / f"data-{number}", rounds, world)
            for number, (title, case) in enumerate(cases.items())
        }
        if world.is_main:
            (folder / "found.json").write_text(json.dumps(found))
        if first.launcher == "parameter server":
            end_service(world)


def measure_rounds(
    component: Any, case: LoopCase, data: Path, rounds: int, world: World
) -> dict[str, list[tuple[float, float]]]:
    """Train in both ways in turn, a round first that does not count: it compiles and fills caches."""
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for number in range(rounds + 1):
        for way in WAYS if number % 2 else reversed(WAYS):  # who is first gains nothing by it
            os.environ.update(LAUNCH)  # Lightning's environment takes WORLD_SIZE away at its end
            with tempfile.TemporaryDirectory() as out, chdir(out):  # what is reported goes into its folder outputs
                train = train_ours if way == "ours" else train_theirs
                if case.launcher == "parameter server":  # rank 0 alone is here: all others compute what it asks for
                    taken = measure_steps(train, component, case, data, Path(out), world)
                else:
                    shared = Path(world.once(partial(str, out), name="folder of a training", scope="job"))
                    taken = measure_steps(train, component, case, data, shared, world)
                    world.barrier("trained")
            if number:
                found[way].append(taken)
    return found


def measure_steps(way: Any, component: Any, case: LoopCase, data: Path, out: Path, world: World) -> tuple[float, float]:
    """Train once; the processor's seconds of all ranks together, and the seconds that passed."""
    given = {"data": data, **{port: out / port for port in ("model", "checkpoints", "metrics")}, **case.arguments}
    words = [text for name, value in given.items() for text in ("--" + name.replace("_", "-"), str(value))]
    settings, clock = read_settings(component.Settings, words=words), StepClock(case.warm_up, case.steps)
    alone = case.launcher == "parameter server"
    if alone:
        clock.look = siblings_time
    way(component, case, settings, world, clock)
    assert clock.made == case.warm_up + case.steps + 1, clock
    if alone:
        return clock.processor, clock.wall
    processor, wall = world.sum([clock.processor, clock.wall], "benchmark")
    return processor, wall / world.world_size


def train_ours(component: Any, case: LoopCase, settings: Any, world: World, clock: StepClock) -> None:
    """Train as the component does."""
    plan = plan_batches(settings.batch, world_size=1 if case.launcher == "parameter server" else None)
    given = [settings, plan, world]
    if case.trainer == "train_deepspeed":
        file = component.read_config_file(settings.zero.config)
        given = [settings, file, component.plan_batches(settings.batch, file), world]
    if case.trainer == "train_fsdp":
        layout = component.plan_layout(settings.parallel, settings.decoder, settings.batch.accumulation_steps)
        given = [settings, layout, plan, world]
    with clock.counting():
        component.train(*given)


def train_theirs(component: Any, case: LoopCase, settings: Any, world: World, clock: StepClock) -> None:
    """Train as the counterpart does."""
    del component
    counterpart: Any = importlib.import_module(f"loops.{case.counterpart}")
    getattr(counterpart, case.function)(settings, Dataset.open(settings.data), world, clock)


if __name__ == "__main__":
    main()
