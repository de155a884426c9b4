"""A decoder-only transformer, from a few thousand parameters to billions: RMSNorm, rotary positions, SwiGLU.

It holds no distributed code, and is written so that others can take it apart: every projection is a module of its own
(tensor parallelism splits them by name), blocks keep their number as name when a part of them is built (pipeline
parallelism), nothing but the parameters has to be kept, and each parameter's first values depend on the seed and on
its name alone, so that any part of the model can be made anywhere.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields

import torch
from torch import nn
from torch.nn import functional

from .stored import make_refusal

_EMBEDDING_STD = 0.02
_FOLLOWING = ("key_value_heads", "feed_forward_width")  # 0 is a size that follows from the others
MOST_LAYERS = 10_000  # each is built, even without memory: a number in a stranger's file could take for ever
_MOST_SIZE = 2**31 - 1


def _size_problem(name: str, value: object) -> str:
    """Why a size is none that can be built; empty if it is one."""
    most = MOST_LAYERS if name == "layers" else _MOST_SIZE
    if type(value) is not int or value > most:
        return f"{name} {str(value)[:40]} is no whole number up to {most:,}"
    return "" if value >= 1 or (value == 0 and name in _FOLLOWING) else f"{name} {value} is not 1 or more"


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """Sizes of a decoder.

    Attributes:
        vocabulary: number of tokens.
        context_length: the longest sequence that it takes, in tokens.
        layers: number of blocks.
        width: size of a token's vector.
        heads: of the attention; divides the width into even parts.
        key_value_heads: heads of keys and values, each shared by equally many query heads; 0 is as many as `heads`.
        feed_forward_width: hidden size of a block's perceptron; 0 is 8/3 of the width, rounded up to a multiple of 32.
        tied: whether the output layer uses the embedding's weights.
        norm_epsilon: what the norms add to the mean square; 0 is the smallest number that makes a difference.
        rope_theta: base of the rotary frequencies, as in RoFormer (Su et al. 2021).
        rope_factor: by which the slow frequencies are slowed down, as in Llama 3.1; 1 leaves them as they are.
        rope_low: turns over `rope_length` tokens of a frequency that is slowed down wholly, at most.
        rope_high: turns of one that is left as it is, at least; those in between are slowed down in part.
        rope_length: tokens of the texts that the model was trained with before.
        separator: token that stands before each document of a row, which are then kept apart; -1: a row is one text.

    Raises:
        Refusal: if they do not fit together; all that is wrong is named.
    """

    vocabulary: int
    context_length: int
    layers: int = 4
    width: int = 128
    heads: int = 4
    key_value_heads: int = 0
    feed_forward_width: int = 0
    tied: bool = False
    norm_epsilon: float = 0.0
    rope_theta: float = 10_000.0
    rope_factor: float = 1.0
    rope_low: float = 1.0
    rope_high: float = 4.0
    rope_length: int = 8192
    separator: int = -1

    def __post_init__(self) -> None:
        sizes = [one.name for one in fields(self) if one.type == "int" and one.name != "separator"]
        problems = [problem for name in sizes if (problem := _size_problem(name, getattr(self, name)))]
        if type(self.separator) is not int:
            problems.append(f"separator {self.separator!r:.40} is no token")
        if problems:
            raise make_refusal(f"This decoder cannot be built: {'; '.join(problems)}.")
        if not self.key_value_heads:
            object.__setattr__(self, "key_value_heads", self.heads)
        if not self.feed_forward_width:
            object.__setattr__(self, "feed_forward_width", math.ceil(self.width * 8 / 3 / 32) * 32)
        if self.width % (2 * self.heads):
            problems.append(f"width {self.width} does not divide into {self.heads} heads of an even size")
        if not problems and self.heads % self.key_value_heads:
            problems.append(f"heads {self.heads} is not a multiple of key_value_heads {self.key_value_heads}")
        if problems:
            raise make_refusal(f"This decoder cannot be built: {'; '.join(problems)}.")

    @property
    def head_width(self) -> int:
        """Size of one head's queries, keys and values."""
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        attention = self.width * self.head_width * 2 * (self.heads + self.key_value_heads)
        block = attention + 3 * self.width * self.feed_forward_width + 2 * self.width
        return self.layers * block + self.width + self.vocabulary * self.width * (1 if self.tied else 2)

    def flops_per_token(self, sequence_length: int) -> float:
        """Floating-point operations of training on one token, forward and backward, without any that are done twice.

        Six for each parameter that a token is multiplied with, and 12 * layers * width * length for attention, as in
        PaLM (Chowdhery et al. 2022, appendix B), by which others state their model FLOPs utilization too.
        """
        multiplied = self.parameters - (0 if self.tied else self.vocabulary * self.width)  # the embedding is a look-up
        return 6.0 * multiplied + 12.0 * self.layers * self.width * sequence_length


class DecoderModel(nn.Module):
    """Embedding, blocks, norm, output layer; or the part of them that one stage of a pipeline has.

    Its parameters are on the meta device, without memory: `initialise_decoder`, or load a state with ``assign=True``.

    The first of the `stages`, which divide the layers, has the embedding, the last the norm and the output layer.
    """

    def __init__(self, settings: DecoderSettings, stage: int = 0, stages: int = 1) -> None:
        super().__init__()
        self.settings = settings
        share = settings.layers // stages
        last = stage == stages - 1
        with torch.device("meta"):
            self.embed = nn.Embedding(settings.vocabulary, settings.width) if stage == 0 else None
            self.blocks = nn.ModuleDict(
                {str(n): DecoderBlock(settings) for n in range(stage * share, (stage + 1) * share)}
            )
            self.norm = _make_norm(settings) if last else None
            head = last and not settings.tied
            self.head = nn.Linear(settings.width, settings.vocabulary, bias=False) if head else None

    def forward(self, x: torch.Tensor, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Map tokens (N, L), int, to logits (N, L, vocabulary); in a pipeline, what the stage before gives.

        A later stage needs the `tokens` too where documents are kept apart.
        """
        tokens, separator = x if self.embed is not None else tokens, self.settings.separator
        mask = None if tokens is None or separator < 0 else document_mask(tokens, separator)
        if self.embed is not None:
            if x.shape[1] > self.settings.context_length:
                raise make_refusal(
                    f"A sequence of {x.shape[1]} tokens is longer than the model's context of "
                    f"{self.settings.context_length}."
                )
            x = self.embed(x)
        for block in self.blocks.values():
            x = block(x) if mask is None else block(x, mask)
        if self.norm is None:
            return x
        x = self.norm(x)
        if self.head is not None:
            return self.head(x)
        assert self.embed is not None  # noqa: S101  # a tied model has one stage
        return functional.linear(x, self.embed.weight)


class DecoderBlock(nn.Module):
    """Attention and a perceptron, each with a norm before it and added to its input."""

    def __init__(self, settings: DecoderSettings) -> None:
        super().__init__()
        self.attention_norm = _make_norm(settings)
        self.attention = CausalAttention(settings)
        self.feed_norm = _make_norm(settings)
        self.feed = FeedForward(settings.width, settings.feed_forward_width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Map (N, L, width) to the same shape; the mask is the attention's."""
        x = x + self.attention(self.attention_norm(x), mask=mask)
        return x + self.feed(self.feed_norm(x))


class CausalAttention(nn.Module):
    """Causal self-attention with rotary positions.

    How many heads there are is read off the projections: under tensor parallelism a rank has a part of them.
    """

    def __init__(self, settings: DecoderSettings) -> None:
        super().__init__()
        self.settings, self.head_width = settings, settings.head_width
        width, keys = settings.width, settings.key_value_heads * settings.head_width
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, keys, bias=False)
        self.value = nn.Linear(width, keys, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Map (N, L, width) to the same shape; with a mask (N, 1, L, L), a token attends where it is true alone."""
        q, k, v = (
            projection(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        q, k = _rotated(q, k, self.settings)
        shared = q.shape[1] != k.shape[1]
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=shared)
        return self.out(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, L, width) to the same shape."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


def _make_norm(settings: DecoderSettings) -> nn.RMSNorm:
    return nn.RMSNorm(settings.width, eps=settings.norm_epsilon or None)


def document_mask(tokens: torch.Tensor, separator: int) -> torch.Tensor:
    """Say which tokens (N, L) attend to which: to those before in their document, which begins with its separator.

    (N, 1, L, L), bool. A separator ends the document before it for the loss, which is that of the token that follows
    each, and attends to itself alone; so every token of the row is predicted, and none from another document. Rotary
    positions need no reset: attention depends on their differences only.
    """
    documents = (tokens == separator).cumsum(1)
    same = documents[:, None, :, None] == documents[:, None, None, :]
    return same.tril()


def _rotated(q: torch.Tensor, k: torch.Tensor, settings: DecoderSettings) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn queries and keys (N, heads, L, head width) by their position.

    The angles are computed at each use: a table would be a buffer, which belongs to no shard and to no saved model.
    """
    positions = torch.arange(q.shape[-2], device=q.device, dtype=torch.float32)
    angles = torch.outer(positions, _rotary_speeds(settings, q.device))
    cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)

    def turn(x: torch.Tensor) -> torch.Tensor:
        one, other = x.chunk(2, -1)
        return torch.cat((one * cos - other * sin, one * sin + other * cos), -1)

    return turn(q), turn(k)


def _rotary_speeds(settings: DecoderSettings, device: torch.device) -> torch.Tensor:
    """Angles from a token to the next, in the arithmetic of transformers: its logits are the same to the bit."""
    size = settings.head_width
    speeds = 1.0 / settings.rope_theta ** (torch.arange(0, size, 2, device=device).float() / size)
    if settings.rope_factor == 1:
        return speeds
    turns = settings.rope_length * speeds / (2 * math.pi)
    kept = ((turns - settings.rope_low) / (settings.rope_high - settings.rope_low)).clamp(0, 1)
    return (1 - kept) * speeds / settings.rope_factor + kept * speeds


def initialise_decoder(module: DecoderModel, seed: int, device: torch.device | str = "cpu") -> DecoderModel:
    """Give a decoder memory on a device, and its first values."""
    module.to_empty(device=device)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(first_values(name, tuple(parameter.shape), module.settings.layers, seed))
    return module


def first_values(name: str, shape: tuple[int, ...], layers: int, seed: int) -> torch.Tensor:
    """First values of a parameter, float32 on the CPU: the same wherever and with whatever else they are made.

    Projections keep the variance of what they are given; those that are added to the residual stream are smaller by the
    root of their number, as in GPT-2. Norms begin as 1.
    """
    if len(shape) == 1:
        return torch.ones(shape)
    if name.startswith("embed."):
        std = _EMBEDDING_STD
    else:
        std = shape[1] ** -0.5
        if name.endswith(("attention.out.weight", "feed.down.weight")):
            std /= math.sqrt(2 * layers)
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
    return torch.empty(shape).normal_(0.0, std, generator=generator)
