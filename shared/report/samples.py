"""Continuations that a language model writes to the beginnings of rows that it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data import Split
from shared.report.shown_rows import TokenText

Tokens = npt.NDArray[np.int64]
Continuing = Callable[[Tokens, int, int], tuple[Tokens, npt.NDArray[np.float64]]]
"""Takes a prompt (L,), how many tokens to add at most, and a seed; gives the tokens and the cross entropy of each."""
Scoring = Callable[[npt.NDArray[Any]], tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]]

_MOST_TOKENS = 64  # of a prompt, and of what follows
_LARGEST_EXPONENT = 709.0  # e to more than this is no float64


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt from a row, what the model writes, and what really follows there.

    Attributes:
        perplexity: of the model for its own continuation; None where no float holds it, or if it wrote nothing.
        held_out_perplexity: of the model for what really follows, as many tokens at most.
    """

    row: int
    prompt: str
    continuation: str
    perplexity: float | None
    held_out: str
    held_out_perplexity: float | None

    def to_json(self) -> dict[str, Any]:
        """All of it, by name."""
        return asdict(self)


def sample_rows(rows: int, samples: int) -> list[int]:
    """Evenly spaced rows of a split, each once."""
    return sorted({number * rows // samples for number in range(samples)})


def draw_sample(row: int, split: Split, continuing: Continuing, scoring: Scoring, read: TokenText) -> Sample:
    """Let the model continue the beginning of a row.

    The row's number is the seed, and a row is continued alone: so whatever rank draws it, it is the same.
    """
    tokens = split.take(np.array([row]))["x"][0].astype(np.int64)
    cut = min(_MOST_TOKENS, max(1, len(tokens) // 2))
    count = min(_MOST_TOKENS, len(tokens) - cut)
    written, nats = continuing(tokens[:cut], count, row)
    known = tokens[: cut + count]
    held_out_nats, _ = scoring(known[None])
    return Sample(
        row=row,
        prompt=read(known[:cut]),
        continuation=read(written),
        perplexity=_perplexity(nats),
        held_out=read(known[cut:]),
        held_out_perplexity=_perplexity(held_out_nats[0, cut - 1 :].astype(np.float64)),
    )


def _perplexity(nats: npt.NDArray[np.float64]) -> float | None:
    mean = float(nats.mean()) if len(nats) else math.inf
    return math.exp(mean) if mean < _LARGEST_EXPONENT else None
