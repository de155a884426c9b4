"""From the name of an architecture to a module: the zoo, or a function in a file of the user's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from . import mlp, resnet, standard_resnet, standard_vit, vit
from .own_code import own_function
from .stored import make_refusal

NetworkBuilder = Callable[[tuple[int, ...], int], nn.Module]
"""Takes the shape of one channels-first row and the number of outputs."""

ZOO: Mapping[str, NetworkBuilder] = MappingProxyType(
    {
        "mlp": mlp.build_mlp,
        "resnet": resnet.build_resnet,
        "resnet18": standard_resnet.build_resnet18,
        "resnet34": standard_resnet.build_resnet34,
        "resnet50": standard_resnet.build_resnet50,
        "vit": vit.build_vit,
        "vit_s": vit.build_vit_small,
        "vit_b": vit.build_vit_base,
        "vit_small_patch16": standard_vit.build_vit_small_patch16,
        "vit_base_patch16": standard_vit.build_vit_base_patch16,
    }
)
IMAGE_ARCHITECTURES = tuple(name for name in ZOO if name != "mlp")


class CategoryExpansion(nn.Module):
    """Puts a feature for each value of a category, 1 or 0, in the place of its code: the first layer embeds them.

    The code 0 is a value that the training has not seen: all of its features are 0.
    """

    numbers: torch.Tensor
    places: torch.Tensor
    codes: torch.Tensor

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        found = [(place, code) for place, size in enumerate(sizes) for code in range(1, size + 1)]
        # Not in the state: they follow from the card.
        plain = [place for place, size in enumerate(sizes) if not size]
        self.register_buffer("numbers", torch.tensor(plain, dtype=torch.int64), persistent=False)
        self.register_buffer("places", torch.tensor([place for place, _ in found], dtype=torch.int64), persistent=False)
        self.register_buffer("codes", torch.tensor([code for _, code in found], dtype=torch.int64), persistent=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Map rows (N, features) to (N, numbers and values)."""
        return torch.cat([rows[:, self.numbers], (rows[:, self.places] == self.codes).to(rows.dtype)], 1)


class NormalisedModel(nn.Module):
    """A network that takes rows as the dataset holds them.

    The statistics belong to the model, so that whoever has it needs nothing else to feed it.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        net: nn.Module,
        target_mean: float = 0.0,
        target_std: float = 1.0,
        category_sizes: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self._target = (target_mean, target_std)  # of a regression, so that its outputs are in the target's units
        # A channel that never changes is only shifted: dividing by its deviation of 0 would make it not a number.
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor([s or 1.0 for s in std], dtype=torch.float32))
        self.expand = CategoryExpansion(category_sizes) if category_sizes else nn.Identity()
        self.net = net

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Map raw rows (N, *input_shape) of any type to logits or values (N, outputs); images come as (N, H, W, C)."""
        x = (rows.to(self.mean.dtype) - self.mean) / self.std
        # Moving the axis of contiguous NHWC rows is channels_last in memory, which convolutions on GPUs want.
        x = self.expand(x)
        outputs = self.net(x.movedim(-1, 1) if x.ndim > 2 else x)
        mean, std = self._target
        return outputs if (mean, std) == (0.0, 1.0) else outputs.to(self.mean.dtype) * std + mean


def build_network(
    architecture: str,
    input_shape: tuple[int, ...],
    num_outputs: int,
    model_code: str | Path | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Build the network, without normalisation, for rows of `input_shape` as the dataset holds them.

    Args:
        architecture: a name of the zoo, or ``FILE.py:FUNCTION`` in the folder `model_code`, where
            ``function(input_shape, num_outputs)`` gets the channels-first shape and returns a ``torch.nn.Module``.
        input_shape: (height, width, channels) for images, (features,) for tables, as `ModelCard.network_shape` has it.
        num_outputs: number of logits, or 1 for a regression.
        model_code: folder with the user's code.
        arguments: by name, for a class in the user's file; it also gets ``input_shape`` and ``num_outputs``, if it has
            parameters of these names and `arguments` does not. None: for a function, as above.

    Raises:
        Refusal: if there is no such architecture, if it does not fit the rows, or if the user's function is wrong.
    """
    builder = ZOO.get(architecture)
    shape = (input_shape[-1], *input_shape[:-1])
    if builder is None:
        return _from_users_file(architecture, model_code, shape, num_outputs, arguments)
    if architecture in IMAGE_ARCHITECTURES and len(input_shape) != 3:
        raise make_refusal(
            f"architecture {architecture} takes images, (H, W, C); the rows have shape {input_shape}. Use mlp."
        )
    return builder(shape, num_outputs)


def _from_users_file(
    architecture: str,
    model_code: str | Path | None,
    shape: tuple[int, ...],
    num_outputs: int,
    arguments: Mapping[str, Any] | None,
) -> nn.Module:
    what = f"architecture {architecture!r}" if arguments is None else f"module {architecture!r}"
    choices = f"choose {', '.join(ZOO)}, or FILE.py:FUNCTION" if arguments is None else "give FILE.py:CLASS"
    name = architecture.rpartition(":")[2]
    with own_function(what, architecture, model_code, choices) as (path, builder):
        call = _call(path, builder, shape, num_outputs, arguments)
        try:
            net = builder(*call.args, **call.kwargs)
        except Exception as error:
            raise make_refusal(f"{path}: {name}{_shown(call)} raised {type(error).__name__}: {error}") from error
    if not isinstance(net, nn.Module):
        raise make_refusal(f"{path}: {name} returned {type(net).__name__}; it has to return a torch.nn.Module.")
    return net


def _call(
    path: Path, builder: NetworkBuilder, shape: tuple[int, ...], num_outputs: int, arguments: Mapping[str, Any] | None
) -> inspect.BoundArguments:
    """Say what the user's function or class is called with, or that it cannot be."""
    signature = inspect.signature(builder)
    if arguments is None:
        wanted = "(input_shape, num_outputs)"
        given: tuple[tuple[Any, ...], dict[str, Any]] = ((shape, num_outputs), {})
    else:
        known = {"input_shape": shape, "num_outputs": num_outputs}
        named = {name: value for name, value in known.items() if name in signature.parameters} | dict(arguments)
        wanted, given = f"({', '.join(f'{name}=' for name in named)})", ((), named)
    try:
        return signature.bind(*given[0], **given[1])
    except TypeError as error:
        raise make_refusal(f"{path}: {builder.__name__}{signature} has to take {wanted}: {error}.") from error


def _shown(call: inspect.BoundArguments) -> str:
    named = (f"{name}={value!r}" for name, value in call.kwargs.items())
    return f"({', '.join([*map(repr, call.args), *named])})"
