"""Begin with the weights of a model that a trainer of this library has saved."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from shared.distributed import World
from shared.models import ModelCard, build_network
from shared.models.initial import differing_names, open_initial, refuse_other_shapes
from shared.models.package import read_weights


def take_initial_weights(
    folder: Path, net: nn.Module, card: ModelCard, world: World, model_code: Path | None = None
) -> ModelCard:
    """Put a saved model's weights into a network, and return its card with that model's mean and deviation.

    A network for other classes, or another target, keeps the head that it has.

    Raises:
        Refusal: if the model does not fit; see ``shared.models.initial``.
    """
    file, card, new_head = open_initial(folder, card)
    state = {name.removeprefix("net."): tensor for name, tensor in read_weights(file).items()}
    found = {name: tuple(tensor.shape) for name, tensor in state.items() if name not in ("mean", "std")}
    wanted = _shapes(net)
    head: set[str] = set()
    if new_head:
        with torch.random.fork_rng():
            other = build_network(card.architecture, card.network_shape, card.outputs + 1, model_code)
        head = differing_names(wanted, _shapes(other))
    refuse_other_shapes(folder, found, wanted, head)
    net.load_state_dict({name: state[name] for name in wanted if name not in head}, strict=False)
    world.note(f"begins with the weights of {folder}" + (f"; new: {', '.join(sorted(head))}" if head else ""))
    return card


def _shapes(net: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
