"""What is minimised and what is measured, by task: cross entropy of classes or tokens, or squared errors."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch.nn import functional

from shared.data import Index, TextEncoding
from shared.training.core.sums import ClassificationSums, RegressionSums, TaskSums


class TrainingObjective(TaskSums):
    """The loss of a task, and its metrics."""

    @abstractmethod
    def loss(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean loss of some rows: outputs (N, outputs) against labels or targets (N,); of text with (N, L) in front."""

    @abstractmethod
    def measure(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Sums over some rows, float64, from which ``metrics`` are made."""


class ClassificationObjective(ClassificationSums, TrainingObjective):
    """Cross entropy in nats, and accuracy."""

    def loss(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy; the labels of mixed pictures are shares of the classes (N, classes)."""
        if y.ndim > 1:
            outputs = _wide(outputs)
            y = y.to(outputs.dtype)
        return functional.cross_entropy(outputs, y, label_smoothing=self._smoothing)

    def measure(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Cross entropies and right answers."""
        losses = functional.cross_entropy(outputs, y, reduction="none")
        return torch.stack([losses.double().sum(), (outputs.argmax(1) == y).sum().double()])


class RegressionObjective(RegressionSums, TrainingObjective):
    """Mean squared error of the standardised target; in its units its root, the mean absolute error and R2."""

    def loss(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean squared error, in standard deviations of the target."""
        # A difference first, in the wider type of the two: a target far from 0 keeps its digits.
        return ((outputs[:, 0] - y) / self._std).square().mean().to(outputs.dtype)

    def measure(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Squared and absolute errors; the target's first and second moment around the train split's mean."""
        errors, around_mean = outputs[:, 0].double() - y, y - self._mean
        parts = (errors.square(), errors.abs(), around_mean, around_mean.square())
        return torch.stack([part.double().sum() for part in parts])


class LanguageObjective(TrainingObjective):
    """Cross entropy of the next token in nats, perplexity, bits for each byte of a split's text, and accuracy.

    Labels are smoothed over the vocabulary in the loss that is minimised only.
    """

    sums = 3

    def __init__(self, text: TextEncoding, split: str, label_smoothing: float = 0.0) -> None:
        self._text, self._split, self._smoothing = text, split, label_smoothing

    def loss(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy over all tokens: logits (N, L, vocabulary) against tokens (N, L)."""
        return functional.cross_entropy(_wide(outputs).flatten(0, 1), y.flatten(), label_smoothing=self._smoothing)

    def measure(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Cross entropies, right tokens, and tokens."""
        losses = functional.cross_entropy(_wide(outputs).flatten(0, 1), y.flatten(), reduction="none")
        right = (outputs.argmax(-1) == y).sum().double()
        return torch.stack([losses.double().sum(), right, torch.full_like(right, y.numel())])

    def metrics(self, sums: Sequence[float], rows: int) -> dict[str, float]:
        """``loss``, ``perplexity``, ``bits_per_byte`` and ``token_accuracy``; perplexity is infinite above e^709."""
        loss = sums[0] / sums[2]
        return {
            "loss": loss,
            "perplexity": math.exp(loss) if loss < 709 else math.inf,
            "bits_per_byte": self._text.bits_per_byte(self._split, loss),
            "token_accuracy": sums[1] / sums[2],
        }


def _wide(outputs: torch.Tensor) -> torch.Tensor:
    """Logits of a half precision would lose the small differences that the cross entropy is about."""
    return outputs.float() if outputs.element_size() < 4 else outputs


def objective_of(index: Index, label_smoothing: float = 0.0, split: str = "train") -> TrainingObjective:
    """The objective of a dataset's task; ``split`` is the one that is measured."""
    if index.task == "language_modeling" and index.text is not None:
        return LanguageObjective(index.text, split, label_smoothing)
    return (
        ClassificationObjective(label_smoothing)
        if index.target is None
        else RegressionObjective(index.target.mean, index.target.std)
    )
