"""What Lightning's Trainer is told of a model: one of ours, or the user's LightningModule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from lightning import Callback, LightningModule
from torch import nn

from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.models import Card, Normalised
from shared.settings.running import LoaderSettings
from shared.settings.training import OptimizerSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.core.schedule import Schedule
from shared.training.lightning.feed import ValidationPasses
from shared.training.lightning.module import OptimizerRate
from shared.training.torch.feed import Reader
from shared.training.torch.passes import Prepare


@dataclass(frozen=True)
class TrainingTask:
    """One model and how it is trained.

    Attributes:
        lightning: what Lightning trains.
        save: writes the model to the output; rank 0 calls it.
        rate: the learning rate of each step, for the reports.
        prepare: what is done to raw rows before `lightning` gets them; None: it takes them as they are.
        validate: measures the model exactly over all ranks; None: `lightning` does it, with `validation_passes`.
        validation_passes: for `lightning`'s own validation.
        callbacks: further ones.
    """

    lightning: LightningModule
    save: Callable[[], None]
    rate: Schedule
    prepare: Prepare | None = None
    validate: Callable[[], Mapping[str, float]] | None = None
    validation_passes: ValidationPasses | None = None
    callbacks: tuple[Callback, ...] = ()


def make_own_task(
    module: Normalised,
    card: Card,
    save: Callable[[], None],
    optimizer: OptimizerSettings,
    schedule: Schedule,
    data: Dataset,
    world: World,
    plan: BatchPlan,
    loader: LoaderSettings,
) -> TrainingTask:
    """Train a model that `make_own_module` made.

    Raises:
        Refusal: if it makes its optimizer steps itself, and is to accumulate.
    """
    net, name = module.net, card.architecture
    assert isinstance(net, LightningModule)  # noqa: S101  # it has been looked at when it was made
    if not net.automatic_optimization and plan.accumulation_steps > 1:
        raise Refusal(
            f"accumulation_steps {plan.accumulation_steps}: module {name} makes its optimizer steps itself, so "
            "it has to accumulate itself too. Set accumulation_steps to 1."
        )
    if not net.automatic_optimization and optimizer.clip_norm > 0:
        world.note(f"note: clip_norm has no effect here: module {name} makes its optimizer steps itself")
    prepare = Normalised(card.mean, card.std, nn.Identity()).to(world.device, module.mean.dtype)
    measured = type(net).validation_step is not LightningModule.validation_step
    passes = None
    if measured and data.index.rows("validation") >= world.world_size:
        passes = ValidationPasses(Reader(data.split("validation"), world.device, loader), plan, world, prepare)
    rate = OptimizerRate(**asdict(schedule), module=net)
    return TrainingTask(net, save, rate, prepare, validation_passes=passes)
