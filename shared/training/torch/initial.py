"""Begin with the weights of a model that a trainer of this library has saved, or that others have published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from shared.distributed import Refusal, World
from shared.models import ModelCard, build_network
from shared.models.initial import differing_names, open_initial, refuse_other_shapes
from shared.models.package import read_weights
from shared.models.published import CLASSIFIERS, NORMALIZATIONS, Published, read_published
from shared.settings.network import NetworkSettings


def take_first_weights(network: NetworkSettings, net: nn.Module, card: ModelCard, world: World) -> ModelCard:
    """Put the weights that a training is to begin with, if any, into its network; give the card with its normalisation.

    Raises:
        Refusal: if they do not fit, or if both a saved model and published weights are given.
    """
    saved, place, published = network.initial_model, network.initial_weights, None
    if saved is not None and place is not None:
        raise Refusal("initial_model and initial_weights are both given: the training begins with one of them.")
    if place is not None:
        published = take_published_weights(place, net, card, world)
    elif saved is not None:
        initial = take_initial_weights(saved, net, card, world, network.model_code)
        card = initial if network.normalization == "auto" else card
    return normalised_card(card, network.normalization, published)


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


def take_published_weights(place: Path, net: nn.Module, card: ModelCard, world: World) -> Published:
    """Put weights of torchvision or timm into a network; it keeps its own last layer where theirs has other outputs.

    Raises:
        Refusal: if the architecture has none, or if they do not fit; see ``shared.models.published``.
    """
    architecture = card.architecture
    if architecture not in CLASSIFIERS:
        raise Refusal(
            f"initial_weights are for the architectures {', '.join(CLASSIFIERS)}, not for {architecture}. A function "
            "of your own can read its weights itself, from its folder model_code."
        )
    if card.input_shape[-1] != 3:
        raise Refusal(
            f"initial_weights were trained on pictures of 3 channels; those of the data have {card.input_shape[-1]}: "
            "prepare the data with color rgb."
        )
    published = read_published(place)
    tensors = published.fitted(architecture, _shapes(net), getattr(net, "grid", None))
    net.load_state_dict(tensors, strict=False)
    last = CLASSIFIERS[architecture]
    if f"{last}.weight" in tensors:
        kept = f"its {last} too: the data's {card.outputs} classes have to be those, in the same order"
    else:
        theirs = published.shapes.get(f"{last}.weight", (0,))[0]
        kept = f"new: {last}, for {card.outputs} outputs (the file's has {theirs or 'none'})"
    world.note(f"begins with the weights of {published.file}; {kept}")
    return published


def normalised_card(card: ModelCard, normalization: str, published: Published | None) -> ModelCard:
    """Give the card with the mean and deviation that are asked for; auto are those of published weights, if given.

    A published one is for bytes: 0 to 255.

    Raises:
        Refusal: if a published one is asked for and the rows are no colour pictures of bytes.
    """
    if normalization == "data" or (normalization == "auto" and published is None):
        return card
    if normalization == "auto" and published is not None:
        suited = NORMALIZATIONS["half" if card.architecture.startswith("vit") else "imagenet"]
        mean, std = published.normalization or suited
    else:
        mean, std = NORMALIZATIONS[normalization]
    if len(card.input_shape) != 3 or card.input_shape[-1] != 3 or card.input_dtype != "uint8":
        raise Refusal(
            f"normalization {normalization} is for pictures of 3 channels of bytes (uint8); the rows are "
            f"{card.input_shape} of {card.input_dtype}. Set normalization to data."
        )
    return replace(card, mean=tuple(255 * one for one in mean), std=tuple(255 * one for one in std))


def _shapes(net: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
