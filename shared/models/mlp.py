"""A multilayer perceptron: the default, for tables and small images."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import nn


def build_mlp(input_shape: tuple[int, ...], num_outputs: int, *, width: int = 256, depth: int = 2) -> nn.Module:
    """Build `depth` hidden layers of `width` units for inputs of any shape."""
    sizes = [math.prod(input_shape), *[width] * depth]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], num_outputs))
