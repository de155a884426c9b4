"""Inputs that have no effect in this training: a line about each, so that nobody waits for what will not come."""

from __future__ import annotations

from shared.data import Dataset
from shared.distributed import World
from shared.settings.fields import idle_notes
from shared.settings.trainer import TrainerSettings


def note_unused(settings: TrainerSettings, data: Dataset, world: World) -> None:
    """Let rank 0 name what was given and is not used, as the inputs' definitions say."""
    on_cpu = getattr(world.device, "type", "") == "cpu"
    for note in idle_notes(settings, is_text=data.index.text is not None, world_size=world.world_size, on_cpu=on_cpu):
        world.note(f"note: {note}")
