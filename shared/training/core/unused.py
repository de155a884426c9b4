"""Inputs that have no effect in this training: a line about each, so that nobody waits for what will not come."""

from __future__ import annotations

import argparse

from shared.data import Dataset
from shared.distributed import World


def note_unused(args: argparse.Namespace, data: Dataset, world: World) -> None:
    """Name what was given and is not used; a default cannot be told from what was not given, and is not named.

    Args:
        args: those of any trainer.
        data: what it trains on.
        world: whose rank 0 speaks.
    """
    given = vars(args)
    architecture, module = given.get("architecture", ""), given.get("module")
    text, cpu = data.index.text is not None, getattr(world.device, "type", "") == "cpu"
    own = module is not None or (".py:" in architecture and not text)
    sizes = ("key_value_heads", "feed_forward_width", "context_length")
    unused = (
        ("model_code", given.get("model_code") and not own, "the model is one of this library"),
        ("architecture", module and architecture != "mlp", f"the module {module} is trained in its place"),
        ("tie_embeddings", given.get("tie_embeddings") == "true" and not text, "the data is no text"),
        *((name, given.get(name) is not None and not text, "the data is no text") for name in sizes),
        ("cpu_offload", given.get("cpu_offload") == "true" and cpu, "there is no GPU to offload from"),
        ("sync_batch_norm", given.get("sync_batch_norm") == "true" and text, "a language model has none"),
        (
            "sync_batch_norm",
            given.get("sync_batch_norm") == "true" and not text and world.world_size == 1,
            "one rank has all rows of a batch",
        ),
        ("sharding", given.get("sharding") == "fsdp" and world.world_size == 1, "one rank has nothing to divide"),
    )
    for name, without_effect, reason in unused:
        if without_effect:
            world.note(f"note: {name} has no effect here: {reason}")
