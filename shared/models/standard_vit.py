"""ViT-S/16 and ViT-B/16 as they are published, with the names that timm's weights have; without dropout.

Dosovitskiy et al. 2021, in the form of timm's `vit_small_patch16_224` and `vit_base_patch16_224`: a class token,
learned positions, pre-norm blocks with biases, exact GELU, LayerNorm with an epsilon of 1e-6, and first weights of
N(0, 0.02). Our own `vit_s` and `vit_b` are of the same sizes and have other blocks: see `vit`.
"""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional

from .stored import make_refusal

_PATCH = 16
_EPSILON = 1e-6
"""Of timm's VisionTransformer; torch's default is 1e-5."""
_DEVIATION = 0.02
"""Of the first weights of all linear layers and positions, as in timm's `init_weights_vit_timm`."""


def build_vit_small_patch16(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Build ViT-S/16, 22 million parameters, for images of `input_shape` (channels, height, width)."""
    return StandardViT(input_shape, num_outputs, 384, 12, heads=6)


def build_vit_base_patch16(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Build ViT-B/16, 86 million parameters; see `build_vit_small_patch16`."""
    return StandardViT(input_shape, num_outputs, 768, 12, heads=12)


class StandardViT(nn.Module):
    """Patches of 16 x 16 pixels, a class token before them, pre-norm blocks, a linear head on that token.

    Images whose sides are no multiple of 16 are padded with 0 at the right and below.
    """

    def __init__(self, input_shape: tuple[int, ...], num_outputs: int, width: int, depth: int, *, heads: int) -> None:
        super().__init__()
        channels, height, breadth = input_shape
        self.grid = (-(-height // _PATCH), -(-breadth // _PATCH))
        self.padding = (0, self.grid[1] * _PATCH - breadth, 0, self.grid[0] * _PATCH - height)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + self.grid[0] * self.grid[1], width))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(channels, width, _PATCH, _PATCH)})
        self.blocks = nn.ModuleList(PreNormBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, _EPSILON)
        self.head = nn.Linear(width, num_outputs)
        nn.init.normal_(self.cls_token, std=1e-6)
        nn.init.normal_(self.pos_embed, std=_DEVIATION)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=_DEVIATION)
                nn.init.zeros_(part.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (N, C, H, W) to logits (N, num_outputs)."""
        x = self.patch_embed["proj"](functional.pad(x, self.padding)).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class PreNormBlock(nn.Module):
    """Self-attention and a perceptron, each on normalised values and added to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, _EPSILON), nn.LayerNorm(width, _EPSILON)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        first, second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mlp = nn.Sequential(OrderedDict(fc1=first, act=nn.GELU(), fc2=second))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, tokens, width) to the same shape."""
        x = x + self._attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, width = x.shape
        q, k, v = self.attn["qkv"](x).view(rows, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.attn["proj"](y.transpose(1, 2).reshape(rows, tokens, width))


def resize_positions(positions: torch.Tensor, grid: tuple[int, int]) -> torch.Tensor:
    """Bring learned positions (1, 1 + side * side, width) of square images to another grid of patches.

    The class token's stays; the others are scaled bicubically and smoothed where they become fewer, in float32, as
    timm's `resample_abs_pos_embed` does.

    Raises:
        Refusal: if they are not of a square and a class token.
    """
    count, width = positions.shape[1] - 1, positions.shape[2]
    side = math.isqrt(count)
    if side * side != count or not side:
        raise make_refusal(f"pos_embed {tuple(positions.shape)} is not of a square of patches and one class token.")
    if grid == (side, side):
        return positions
    square = positions[:, 1:].float().reshape(1, side, side, width).permute(0, 3, 1, 2)
    scaled = functional.interpolate(square, size=grid, mode="bicubic", antialias=True)
    others = scaled.permute(0, 2, 3, 1).reshape(1, -1, width).to(positions.dtype)
    return torch.cat([positions[:, :1], others], 1)
