"""One rank of a comparison: a trainer of ours and its counterpart, a few steps of each in turn, in the same world."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
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
    """Train in both ways, a round first that does not count: it compiles and fills caches."""
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for number in range(rounds + 1):
        os.environ.update(LAUNCH)  # Lightning's environment takes WORLD_SIZE away at its end
        with tempfile.TemporaryDirectory() as out, chdir(out):  # what is reported goes into its folder outputs
            if case.launcher == "parameter server":  # rank 0 alone is here: all others compute what it asks for
                taken = measure_round(component, case, data, Path(out), world)
            else:
                shared = Path(world.once(partial(str, out), name="folder of a training", scope="job"))
                taken = measure_round(component, case, data, shared, world)
                world.barrier("trained")
        if number:
            for way in WAYS:
                found[way].append(taken[way])
    return found


def measure_round(
    component: Any, case: LoopCase, data: Path, out: Path, world: World
) -> dict[str, tuple[float, float]]:
    """Train once in each way; the processor's seconds of all ranks together, and the seconds that passed."""
    alone, turns = case.launcher == "parameter server", Turns()
    clocks, trainings = {}, {}
    for way, train in zip(WAYS, (train_ours, train_theirs), strict=True):
        folders = {port: out / way / port for port in ("model", "checkpoints", "metrics")}
        given = {"data": data, **folders, **case.arguments}
        words = [text for name, value in given.items() for text in ("--" + name.replace("_", "-"), str(value))]
        settings = read_settings(component.Settings, words=words)
        look = siblings_time if alone else time.process_time
        clocks[way] = StepClock(case.warm_up, case.steps, partial(turns.change, way), look)
        trainings[way] = partial(train, component, case, settings, world, clocks[way])
    turns.run(trainings)
    taken = {}
    for way, clock in clocks.items():
        assert clock.made == case.warm_up + case.steps + 1, clock
        processor, wall = clock.processor, clock.wall
        if not alone:
            processor, wall = world.sum([processor, wall], "benchmark")
            wall /= world.world_size
        taken[way] = processor, wall
    return taken


class Turns:
    """Lets two trainings make a block of steps in turn, in threads of which one waits: what slows one slows both."""

    def __init__(self) -> None:
        self._may_go = {way: threading.Semaphore(0) for way in WAYS}
        self._error: BaseException | None = None

    def run(self, trainings: Mapping[str, Callable[[], None]]) -> None:
        """Run both to their ends: ours, which handles signals, in this thread."""
        other = threading.Thread(target=self._theirs, args=(trainings["theirs"],), daemon=True)
        other.start()
        trainings["ours"]()
        self._may_go["theirs"].release()
        other.join()
        if self._error is not None:
            raise self._error

    def change(self, way: str) -> None:
        """Let the other make a block, and wait for its end."""
        other = "theirs" if way == "ours" else "ours"
        self._may_go[other].release()
        self._may_go[way].acquire()
        if way == "ours" and self._error is not None:
            raise self._error

    def _theirs(self, train: Callable[[], None]) -> None:
        self._may_go["theirs"].acquire()
        try:
            train()
        except BaseException as error:  # ours has to end, too
            self._error = error
            self._may_go["ours"].release()
            raise


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
