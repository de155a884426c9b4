"""Weights that torchvision and timm publish, as the first ones of a network here; without either of them.

`Published` is what a file holds; which names and shapes it has to have is the network's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from .initial import TensorShapes, describe_misfits, published_file
from .standard_vit import resize_positions
from .stored import MOST_JSON_BYTES, make_refusal, read_stored

CLASSIFIERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "resnet18": "fc",
        "resnet34": "fc",
        "resnet50": "fc",
        "vit_small_patch16": "head",
        "vit_base_patch16": "head",
    }
)
"""The architectures that published weights fit, each with the name that torchvision and timm give its last layer."""

NORMALIZATIONS: Final[Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]] = MappingProxyType(
    {
        "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    }
)
"""Mean and deviation of red, green and blue between 0 and 1.

imagenet: `ImageClassification` of torchvision's transforms/_presets.py, `IMAGENET_DEFAULT_MEAN` and `_STD` of timm's
data/constants.py: for the ResNets of both, and for Meta's vision transformers of these forms (DeiT, DINO, MAE). half:
`IMAGENET_INCEPTION_MEAN` and `_STD` there, which `_cfg` of timm's vision_transformer.py gives Google's
`vit_small_patch16_224` and `vit_base_patch16_224` (augreg, orig).
"""

_WRAPPINGS: Final = ("state_dict", "model", "model_state_dict")
"""Under which a training's own file has its weights."""
_COUNTER: Final = ".num_batches_tracked"
"""Of batch normalization: it decides nothing here, and torchvision's older files have none."""


@dataclass(frozen=True)
class Published:
    """The tensors of a file, and the mean and deviation that timm's `config.json` beside it names, if there is one."""

    file: Path
    tensors: Mapping[str, torch.Tensor]
    normalization: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @property
    def shapes(self) -> TensorShapes:
        """Shape of each tensor by its name."""
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def fitted(self, architecture: str, wanted: TensorShapes, grid: tuple[int, int] | None) -> dict[str, torch.Tensor]:
        """Give those that a network takes, with the positions of its `grid` of patches, and no classifier that differs.

        Raises:
            Refusal: naming the first that are missing or of another shape.
        """
        tensors = {name: tensor for name, tensor in self.tensors.items() if not name.endswith(_COUNTER)}
        positions = tensors.get("pos_embed")
        if grid is not None and positions is not None and positions.ndim == 3:
            tensors["pos_embed"] = resize_positions(positions, grid)
        last = CLASSIFIERS[architecture]
        head = {f"{last}.weight", f"{last}.bias"}
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        body = {name: shape for name, shape in wanted.items() if not name.endswith(_COUNTER)}
        misfits = describe_misfits(found, body, ignored=head)
        if misfits:
            raise make_refusal(
                f"initial_weights {self.file} does not fit {architecture}: {misfits}. Give weights of {architecture} "
                "from torchvision or timm. A ResNet for pictures of up to 64 pixels has another first convolution: "
                "prepare the data with image_size 224."
            )
        same_head = all(found.get(name) == wanted[name] for name in head)
        return {name: tensor for name, tensor in tensors.items() if name not in head or same_head}


def read_published(place: Path) -> Published:
    """Read a file of weights, or the one in a folder; nothing of it is executed.

    Raises:
        Refusal: if there is none, if it is not clear which, or if it holds anything but tensors by name.
    """
    file = published_file(place)
    if file.suffix == ".safetensors":
        try:
            found: Any = load(read_stored(file))
        except (OSError, SafetensorError) as error:
            raise make_refusal(f"initial_weights {file} cannot be read: {error}.") from error
    else:
        found = _read_pickled_tensors(file)
    config = file.parent / "config.json"
    return Published(file, found, _named_normalization(config) if config.is_file() else None)


def _read_pickled_tensors(file: Path) -> dict[str, torch.Tensor]:
    """Read a file of torch.save, by the reader of torch's that knows tensors and plain values alone."""
    try:
        found = torch.load(BytesIO(read_stored(file)), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may end that reader with any of them
        code = re.search(r"GLOBAL (\S+)", str(error))  # torch's own words advise to run it
        why = f"it names {code[1]}" if code else "it is no whole file of torch.save"
        raise make_refusal(
            f"initial_weights {file} is not read: {why}. Give a .safetensors file, or one of the state_dict alone."
        ) from error
    for name in _WRAPPINGS:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(one, torch.Tensor) for one in found.values()):
        raise make_refusal(
            f"initial_weights {file} holds a {type(found).__name__} and no tensors by name: save the state_dict alone."
        )
    return {str(name).removeprefix("module."): tensor for name, tensor in found.items()}


def _named_normalization(config: Path) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Take the mean and deviation out of a `config.json` as timm writes it on Hugging Face's hub; None in any other."""
    try:
        said = json.loads(read_stored(config, MOST_JSON_BYTES))["pretrained_cfg"]
        mean, std = _three(said["mean"]), _three(said["std"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return mean, std


def _three(numbers: Sequence[float]) -> tuple[float, ...]:
    red, green, blue = map(float, numbers)
    return red, green, blue
