"""train_ddp's loop against one that is written by hand: the same model, batches, optimizer and threads, one rank.

    python benchmarks/hand_written.py

Both run in one process, some steps of one and then as many of the other, and what is compared is the time of the
processor: a neighbour on the machine slows both down, and shows in neither. Each time the model is made anew: two
copies of one loop differ by up to 8 % by where their weights happen to lie in memory. The hand-written loop does what
people write: normalise, forward, loss, backward, clip, step, learning rate, and its loss every ten steps.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import chdir
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "components" / "train_ddp")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from side_by_side import in_turn, keep  # noqa: E402
from torch.nn import functional  # noqa: E402
from train_ddp import add_gradients  # noqa: E402

from shared.data import Array, Dataset, Index, Statistics  # noqa: E402
from shared.data.write import write_index, write_shard  # noqa: E402
from shared.distributed import World, init  # noqa: E402
from shared.models import NormalisedModel  # noqa: E402
from shared.settings.command_line import read_settings  # noqa: E402
from shared.settings.trainer import RowsTrainerSettings as Settings  # noqa: E402
from shared.training.core.batch_plan import plan_batches  # noqa: E402
from shared.training.core.position import TrainingPosition  # noqa: E402
from shared.training.core.run import TrainingRun  # noqa: E402
from shared.training.core.schedule import LearningSchedule  # noqa: E402
from shared.training.torch.feed import BatchFeed, RowReader  # noqa: E402
from shared.training.torch.meter import LossMeter  # noqa: E402
from shared.training.torch.objective import objective_of  # noqa: E402
from shared.training.torch.optimization import TrainingPrecision, make_optimizer, set_learning_rate  # noqa: E402
from shared.training.torch.start import make_rows_model  # noqa: E402

CASES = {
    "mlp, 8 x 8 images, 64 rows a step": ((8, 8, 1), "mlp", 64, 200),
    "mlp, 28 x 28 images, 1,024 rows a step": ((28, 28, 1), "mlp", 1024, 20),
    "resnet, 28 x 28 images, 32 rows a step": ((28, 28, 1), "resnet", 32, 4),
}
ROWS = 8192
EPOCHS = 1000  # more than are run
WARM_UP = 5  # steps

Loop = Generator[None, None, None]


class NoSaver:
    """Saves nothing: the hand-written loop does not either."""

    def save(self, position: TrainingPosition) -> None:
        """Do nothing."""

    def check(self) -> None:
        """Nothing can have gone wrong."""

    def finish(self) -> None:
        """There is nothing to wait for."""


def main() -> None:
    """Measure and keep."""
    torch.set_num_threads(1)
    compared = []
    with tempfile.TemporaryDirectory() as name, chdir(name), init("torch") as world:
        for title, (shape, architecture, batch_size, steps) in CASES.items():
            folder = Path(name, title.replace(" ", ""))
            write_dataset(folder, shape)
            settings, data = settings_for(folder, architecture, batch_size), Dataset.open(folder)
            schedule = LearningSchedule.for_steps(
                EPOCHS * (ROWS // batch_size), settings.optimizer.learning_rate, settings.schedule
            )

            def fresh(settings: Settings = settings, data: Dataset = data) -> NormalisedModel:
                made = make_rows_model(settings.network, settings.precision, settings.seed, data, world, torch.float32)
                return made[0]

            ours = partial(by_train_ddp, settings, data, schedule=schedule, world=world)
            theirs = partial(by_hand, settings, data, schedule=schedule)
            compared.append(
                in_turn(
                    title,
                    ("train_ddp", processor_time(ours, fresh, steps)),
                    ("by hand", processor_time(theirs, fresh, steps)),
                    rounds=31,
                    limit="1.01",
                )
            )
    keep("hand_written", compared)


def processor_time(
    loop: Callable[[NormalisedModel], Loop], fresh: Callable[[], NormalisedModel], steps: int
) -> Callable[[], float]:
    """What makes some steps of a loop with a fresh model, and gives the processor's seconds that they took."""

    def measure() -> float:
        started = loop(fresh())
        for _ in range(WARM_UP):
            next(started)
        start = time.process_time()
        for _ in range(steps):
            next(started)
        taken = time.process_time() - start
        started.close()
        return taken

    return measure


def settings_for(folder: Path, architecture: str, batch_size: int) -> Settings:
    """Those of train_ddp, for more epochs than are run and without a checkpoint."""
    ports = [part for name in ("model", "checkpoints", "metrics") for part in (f"--{name}", str(folder / name))]
    given = ["--data", str(folder), "--architecture", architecture, "--batch-size", str(batch_size), *ports]
    words = [*given, "--epochs", str(EPOCHS), "--checkpoint-every", "1000000000", "--checkpoint-minutes", "0"]
    return read_settings(Settings, words=words)


def by_train_ddp(
    settings: Settings, data: Dataset, module: NormalisedModel, schedule: LearningSchedule, world: World
) -> Loop:
    """The loop of train_ddp, with a stop after each step."""
    plan, precision = plan_batches(settings.batch), TrainingPrecision(settings.precision.precision, world.device)
    optimizer, at = make_optimizer(module, settings.optimizer), TrainingPosition()
    objective = objective_of(data.index, settings.optimizer.label_smoothing)
    reader = RowReader(data.split("train"), world.device, settings.loader)
    feed = BatchFeed(reader, plan, world.rank, settings.loop, settings.loader, settings.seed)
    meter = LossMeter(world, feed.timer)
    with TrainingRun(settings, world, NoSaver(), at, schedule, meter) as run:
        for epoch in range(at.epoch, settings.loop.epochs):
            for batch in feed.epoch(epoch, at.batch):
                set_learning_rate(optimizer, schedule(at.step))
                add_gradients(module, batch, plan, objective, precision, meter)
                precision.step(optimizer, settings.optimizer.clip_norm)
                run.end_step()
                try:
                    yield
                except GeneratorExit:  # closed by who measures: the run has not failed
                    return
            run.end_epoch({})


def by_hand(settings: Settings, data: Dataset, module: NormalisedModel, schedule: LearningSchedule) -> Loop:
    """What somebody would write who needs it once."""
    arrays = data.split("train").take(np.arange(ROWS))
    x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    net, mean, std = module.net, module.mean, module.std
    optimizer, step, losses = make_optimizer(module, settings.optimizer), 0, torch.zeros(())
    size = settings.batch.batch_size
    for epoch in range(settings.loop.epochs):
        order = torch.from_numpy(np.random.default_rng((settings.seed, epoch)).permutation(ROWS))
        for start in range(0, ROWS, size):
            chosen = order[start : start + size]
            rows = ((x[chosen] - mean) / std).movedim(-1, 1)
            for group in optimizer.param_groups:
                group["lr"] = schedule(step)
            loss = functional.cross_entropy(net(rows), y[chosen], label_smoothing=settings.optimizer.label_smoothing)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), settings.optimizer.clip_norm)
            optimizer.step()
            optimizer.zero_grad()
            losses += loss.detach()
            step += 1
            if step % settings.reports.log_every == 0:
                losses.item()
            yield


def write_dataset(folder: Path, shape: tuple[int, ...]) -> None:
    """Random images of ten classes."""
    random = np.random.default_rng(0)
    arrays = {"x": Array(shape, "uint8"), "y": Array((), "int64")}
    rows = {"x": random.integers(0, 17, (ROWS, *shape), np.uint8), "y": random.integers(0, 10, ROWS)}
    shard = write_shard(folder, "train", 0, rows=ROWS, arrays=arrays, chunks=[rows])
    assert shard is not None
    splits = {"train": (shard,), "validation": (), "test": ()}
    write_index(folder, Index("classification", arrays, tuple("0123456789"), Statistics((8.0,), (4.9,)), splits))


if __name__ == "__main__":
    main()
