"""Exact metrics of a language model, from the cross entropy of every token."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.data import TextEncoding

_Floats = npt.NDArray[np.float64]

_LARGEST_EXPONENT = 709.0
"""e to more than this is no float64."""


@dataclass(frozen=True, slots=True)
class LanguageMetrics:
    """All that is known about a language model on N rows of L predicted tokens.

    Attributes:
        text: of the dataset.
        split: what was measured.
        nats: sum of the cross entropies of each row (N,).
        right: tokens of each row that were the most probable ones (N,).
        by_position: mean cross entropy at each place in a row (L,): the more there is before, the lower.
    """

    text: TextEncoding
    split: str
    nats: _Floats
    right: _Floats
    by_position: _Floats

    @property
    def tokens(self) -> int:
        """Number of tokens that were predicted."""
        return len(self.nats) * len(self.by_position)

    @property
    def per_token(self) -> _Floats:
        """Mean cross entropy of each row's tokens, in nats."""
        return self.nats / len(self.by_position)

    def numbers(self) -> dict[str, float]:
        """Flat metrics by name; ``gzip_bits_per_byte`` is what gzip needs for the same text.

        ``perplexity`` is left out where no float holds it.
        """
        loss = math.fsum(self.nats) / self.tokens
        numbers = {
            "bits_per_byte": self.text.bits_per_byte(self.split, loss),
            "gzip_bits_per_byte": self.text.gzip_bits_per_byte(self.split),
            "loss": loss,
            "token_accuracy": math.fsum(self.right) / self.tokens,
            "tokens": float(self.tokens),
            "rows": float(len(self.nats)),
        }
        return numbers | ({"perplexity": math.exp(loss)} if loss < _LARGEST_EXPONENT else {})
