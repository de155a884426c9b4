"""The description of a model for images or tables, as every trainer of such makes it; no framework is needed."""

from __future__ import annotations

from shared.data import Dataset
from shared.models.card import ModelCard


def card_of_rows(architecture: str, data: Dataset, framework: str = "torch") -> ModelCard:
    """Describe a model for a dataset that is no text."""
    x, statistics, target = data.index.arrays["x"], data.index.statistics, data.index.target
    assert statistics is not None  # noqa: S101  # only text has none
    return ModelCard(
        architecture=architecture,
        input_shape=x.shape,
        input_dtype=x.dtype,
        classes=data.index.classes,
        mean=statistics.mean,
        std=statistics.std,
        task=data.index.task,
        columns=data.index.columns,
        target=target.name if target else "",
        target_mean=target.mean if target else 0.0,
        target_std=(target.std or 1.0) if target else 1.0,
        framework=framework,
    )
