"""ResNet-18, 34 and 50 for images, with the names that torchvision's weights have.

He et al. 2016, with the stride in the 3 x 3 convolution ("v1.5"), and the last normalization of each block beginning at
0, as Goyal et al. 2017 train it. Batch normalization takes the statistics of its rank's rows; `sync_batch_norm` makes
them those of all.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

_SMALL_SIDE = 64
"""Images up to this size keep their resolution at the start: the usual stem would leave 32 x 32 pixels 8 x 8."""


def build_resnet18(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Build ResNet-18, 11 million parameters, for images of `input_shape` (channels, height, width)."""
    return StandardResNet(input_shape, num_outputs, (2, 2, 2, 2), BasicBlock)


def build_resnet34(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Build ResNet-34, 21 million parameters; see `build_resnet18`."""
    return StandardResNet(input_shape, num_outputs, (3, 4, 6, 3), BasicBlock)


def build_resnet50(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Build ResNet-50, 24 million parameters; see `build_resnet18`."""
    return StandardResNet(input_shape, num_outputs, (3, 4, 6, 3), BottleneckBlock)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and what comes in, added."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)
        nn.init.zeros_(self.bn2.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, inputs, H, W) to (N, width, H / stride, W / stride)."""
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class BottleneckBlock(nn.Module):
    """A 3 x 3 convolution between two of 1 x 1, which make it a quarter as wide, and what comes in, added."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.downsample = _shortcut(inputs, outputs, stride)
        nn.init.zeros_(self.bn3.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, inputs, H, W) to (N, 4 width, H / stride, W / stride)."""
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        return functional.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class StandardResNet(nn.Module):
    """A stem, four stages, the mean over all places, a linear head."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_outputs: int,
        depths: tuple[int, ...],
        block: type[BasicBlock | BottleneckBlock],
    ) -> None:
        super().__init__()
        self.is_small = max(input_shape[1:]) <= _SMALL_SIDE
        kernel, stride = (3, 1) if self.is_small else (7, 2)
        self.conv1 = nn.Conv2d(input_shape[0], 64, kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for stage, depth in enumerate(depths):
            width = 64 << stage
            blocks = []
            for number in range(depth):
                blocks.append(block(inputs, width, stride=2 if stage and not number else 1))
                inputs = width * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, num_outputs)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (N, C, H, W) to logits (N, num_outputs)."""
        x = functional.relu(self.bn1(self.conv1(x)))
        if not self.is_small:
            x = functional.max_pool2d(x, 3, 2, 1)
        for stage in (1, 2, 3, 4):
            x = self.get_submodule(f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
