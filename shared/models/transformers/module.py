"""A model of transformers as a function of rows of tokens."""

from __future__ import annotations

import torch
from torch import nn

from ..decoder import document_mask  # noqa: TID252


class TokenModel(nn.Module):
    """Takes rows of tokens, filled up with padding (None: they are full), and gives logits.

    `net` is a model for sequence classification or for causal language modelling. With a `separator` from 0 on, a
    document begins behind each such token, and no token is predicted from another document.
    """

    def __init__(self, net: nn.Module, padding: int | None, separator: int = -1) -> None:
        super().__init__()
        self.net, self.padding, self.separator = net, padding, separator

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Map tokens (N, L) to logits (N, classes), or (N, L, vocabulary)."""
        mask: torch.Tensor | None = None
        if self.separator >= 0:
            mask = document_mask(rows, self.separator)  # transformers takes a mask of four axes as it is
        elif self.padding is not None:
            mask = attention_mask(rows, self.padding)
        logits: torch.Tensor = self.net(input_ids=rows, attention_mask=mask).logits
        return logits


def attention_mask(rows: torch.Tensor, padding: int) -> torch.Tensor:
    """Say which tokens of rows (N, L) are theirs: 1 up to the last one that is no padding, and for the first of all.

    A tokenizer may end texts with the token that also fills rows up; inside a row it stays.
    """
    places = torch.arange(1, rows.shape[1] + 1, device=rows.device)
    lengths = ((rows != padding) * places).amax(dim=1, keepdim=True).clamp(min=1)
    return (places <= lengths).long()
