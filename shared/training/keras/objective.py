"""What is minimised and what is measured, by task: the counterpart of `shared.training.torch.objective`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shared.data import Index
from shared.training.core.sums import ClassificationSums, RegressionSums, TaskSums


class TrainingObjective(TaskSums):
    """The loss of a task, and its metrics."""

    @abstractmethod
    def summed_loss(self, outputs: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Compute the sum of the rows' losses: outputs (N, outputs) against labels or targets (N,), as a tensor."""

    @abstractmethod
    def measure(self, outputs: tf.Tensor, y: npt.NDArray[Any]) -> list[float]:
        """Sums over some rows, from which ``metrics`` are made."""


def _as_shares(y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Labels as shares of the classes (N, classes); where a label is no class they are no numbers, as the loss then."""
    of: Any = tf  # whose stubs lack one_hot
    found = of.one_hot(y, outputs.shape[-1], dtype=outputs.dtype)
    return found / of.reduce_sum(found, axis=-1, keepdims=True)


class ClassificationObjective(ClassificationSums, TrainingObjective):
    """Cross entropy in nats, and accuracy."""

    def summed_loss(self, outputs: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Compute the sum of the rows' cross entropies; the labels of mixed pictures are shares (N, classes)."""
        # TensorFlow's own cross entropy from labels is thirty operations where operations are deterministic.
        shares = tf.cast(y, outputs.dtype) if len(y.shape) > 1 else _as_shares(y, outputs)
        if self._smoothing:
            shares = (1 - self._smoothing) * shares + self._smoothing / outputs.shape[-1]
        return -tf.reduce_sum(shares * tf.nn.log_softmax(outputs))

    def measure(self, outputs: tf.Tensor, y: npt.NDArray[Any]) -> list[float]:
        """Cross entropies and right answers."""
        losses = np.asarray(tf.nn.sparse_softmax_cross_entropy_with_logits(y, outputs), np.float64)
        return [float(losses.sum()), float((np.argmax(np.asarray(outputs), 1) == y).sum())]


class RegressionObjective(RegressionSums, TrainingObjective):
    """Mean squared error of the standardised target; in its units its root, the mean absolute error and R2."""

    def summed_loss(self, outputs: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Compute the sum of the rows' squared errors, in squared standard deviations of the target."""
        # A difference first, in the wider type of the two: a target far from 0 keeps its digits.
        errors = (tf.cast(outputs[:, 0], tf.float64) - tf.cast(y, tf.float64)) / self._std
        return tf.cast(tf.reduce_sum(tf.square(errors)), outputs.dtype)

    def measure(self, outputs: tf.Tensor, y: npt.NDArray[Any]) -> list[float]:
        """Squared and absolute errors; the target's first and second moment around the train split's mean."""
        errors, around_mean = np.asarray(outputs, np.float64)[:, 0] - y, np.asarray(y) - self._mean
        parts = (np.square(errors), np.abs(errors), around_mean, np.square(around_mean))
        return [float(part.sum()) for part in parts]


def objective_of(index: Index, label_smoothing: float = 0.0) -> TrainingObjective:
    """The objective of a dataset's task."""
    return (
        ClassificationObjective(label_smoothing)
        if index.target is None
        else RegressionObjective(index.target.mean, index.target.std)
    )
