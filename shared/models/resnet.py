"""A small residual network for images.

GroupNorm, not BatchNorm: statistics over a batch would depend on how many ranks the batch is split over.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def build_resnet(input_shape: tuple[int, ...], num_outputs: int, *, width: int = 32, stages: int = 3) -> nn.Module:
    """Build a network for images of `input_shape` (channels, height, width), doubling its width at each stage."""
    return ResNet(input_shape, num_outputs, width, stages)


class ResNet(nn.Module):
    """Two residual blocks for each stage; each stage after the first halves height and width, down to 1 x 1."""

    def __init__(self, input_shape: tuple[int, ...], num_outputs: int, width: int, stages: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(input_shape[0], width, 3, padding=1, bias=False)
        blocks: list[nn.Module] = []
        for stage in range(stages):
            inputs, outputs = width << max(stage - 1, 0), width << stage
            blocks += [ResidualBlock(inputs, outputs, stride=2 if stage else 1), ResidualBlock(outputs, outputs)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.GroupNorm(8, width << (stages - 1))
        self.head = nn.Linear(width << (stages - 1), num_outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (N, C, H, W) to logits (N, num_outputs)."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(functional.relu(self.norm(x)).mean((2, 3)))


class ResidualBlock(nn.Module):
    """Pre-activation residual block; its last convolution starts at 0, so that the block starts as the identity."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(8, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(8, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        nn.init.zeros_(self.conv2.weight)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        y = functional.relu(self.norm1(x))
        y = self.conv2(functional.relu(self.norm2(self.conv1(y))))
        return self.shortcut(x) + y
