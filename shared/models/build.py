"""From the name of an architecture to a module: the zoo, or a function in a file of the user's."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import torch
from torch import nn

from . import mlp, resnet, vit
from .refuse import refusal

Builder = Callable[[tuple[int, ...], int], nn.Module]
"""Takes the shape of one channels-first row and the number of outputs."""

ZOO: Mapping[str, Builder] = MappingProxyType({"mlp": mlp.build, "resnet": resnet.build, "vit": vit.build})
FOR_IMAGES = ("resnet", "vit")


class Normalised(nn.Module):
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
    ) -> None:
        super().__init__()
        self._target = (target_mean, target_std)  # of a regression, so that its outputs are in the target's units
        # A channel that never changes is only shifted: dividing by its deviation of 0 would make it not a number.
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor([s or 1.0 for s in std], dtype=torch.float32))
        self.net = net

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Map raw rows (N, *input_shape) of any type to logits or values (N, outputs); images come as (N, H, W, C)."""
        x = (rows.to(self.mean.dtype) - self.mean) / self.std
        # Moving the axis of contiguous NHWC rows is channels_last in memory, which convolutions on GPUs want.
        outputs = self.net(x.movedim(-1, 1) if x.ndim > 2 else x)
        mean, std = self._target
        return outputs if (mean, std) == (0.0, 1.0) else outputs.to(self.mean.dtype) * std + mean


def build(
    architecture: str, input_shape: tuple[int, ...], num_outputs: int, model_code: str | Path | None = None
) -> nn.Module:
    """Build the network, without normalisation, for rows of `input_shape` as the dataset holds them.

    Args:
        architecture: a name of the zoo, or ``FILE.py:FUNCTION`` in the folder `model_code`, where
            ``function(input_shape, num_outputs)`` gets the channels-first shape and returns a ``torch.nn.Module``.
        input_shape: (height, width, channels) for images, (features,) for tables.
        num_outputs: number of logits, or 1 for a regression.
        model_code: folder with the user's code.

    Raises:
        Refusal: if there is no such architecture, if it does not fit the rows, or if the user's function is wrong.
    """
    builder = ZOO.get(architecture)
    shape = (input_shape[-1], *input_shape[:-1])
    if builder is None:
        return _from_users_file(architecture, model_code, shape, num_outputs)
    if architecture in FOR_IMAGES and len(input_shape) != 3:
        raise refusal(
            f"architecture {architecture} takes images, (H, W, C); the rows have shape {input_shape}. Use mlp."
        )
    return builder(shape, num_outputs)


def _from_users_file(
    architecture: str, model_code: str | Path | None, shape: tuple[int, ...], num_outputs: int
) -> nn.Module:
    file, colon, function = architecture.partition(":")
    if not colon or not file.endswith(".py") or not function.isidentifier():
        raise refusal(
            f"architecture {architecture!r} is not known: choose {', '.join(ZOO)}, or FILE.py:FUNCTION in model_code."
        )
    if model_code is None:
        raise refusal(f"architecture {architecture!r} needs the input model_code: the folder in which {file} is.")
    folder = Path(model_code).resolve()
    path = (folder / file).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        there = ", ".join(sorted(p.name for p in folder.glob("*.py"))) or "no .py file"
        raise refusal(f"architecture {architecture!r}: there is no {file} in {folder}, which holds {there}.")
    with _importable(folder):
        builder = _function(path, function)
        try:
            net = builder(shape, num_outputs)
        except Exception as error:
            raise refusal(
                f"{path}: {function}({shape}, {num_outputs}) raised {type(error).__name__}: {error}"
            ) from error
    if not isinstance(net, nn.Module):
        raise refusal(f"{path}: {function} returned {type(net).__name__}; it has to return a torch.nn.Module.")
    return net


def _function(path: Path, name: str) -> Builder:
    """Import a file under a name of its own and take a function out of it."""
    spec = importlib.util.spec_from_file_location(f"model_code_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and typing look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise refusal(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        found = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == spec.name]
        raise refusal(f"{path} has no function {name}; it has {', '.join(found) or 'none'}.")
    try:
        inspect.signature(function).bind((1,), 1)
    except TypeError as error:
        raise refusal(
            f"{path}: {name}{inspect.signature(function)} has to take (input_shape, num_outputs): {error}."
        ) from error
    return function


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let the user's file import its neighbours while it is imported and called."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
