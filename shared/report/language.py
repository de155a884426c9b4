"""Write a language model's report: metrics.json, rows.csv, positions.csv, the pictures, and index.html."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shared.language import LanguageMetrics
from shared.report.files import Subject, write_files, write_table

_HEADLINES = {
    "bits_per_byte": "Bits per byte",
    "gzip_bits_per_byte": "gzip, bits per byte",
    "perplexity": "Perplexity",
    "loss": "Nats per token",
    "token_accuracy": "Token accuracy",
}
_MOST_ROWS = 12


@dataclass(frozen=True, slots=True)
class _HardRow:
    """A row that the model found hard: mean cross entropy in nats, and the share of tokens it had right."""

    row: int
    nats: float
    accuracy: float


def write_language(folder: Path, result: LanguageMetrics, subject: Subject) -> None:
    """Write all files of the report into a folder, which is made if needed."""
    # Only the one process that draws pays for this import.
    from shared.report import pictures

    numbers, length = result.numbers(), len(result.by_position)
    images = {
        "loss_by_position.png": pictures.loss_by_position(result.by_position),
        "row_losses.png": pictures.row_losses(result.per_token),
    }
    headlines = [(title, f"{numbers[name]:.4g}") for name, title in _HEADLINES.items() if name in numbers]
    saved = 1 - numbers["bits_per_byte"] / numbers["gzip_bits_per_byte"]
    write_files(folder, "language.html", subject, numbers, headlines, images, hard=_hardest(result), saved=saved)
    accuracy = (result.right / length).tolist()
    lines = ((row, *values) for row, values in enumerate(zip(result.per_token.tolist(), accuracy, strict=True)))
    write_table(folder / "rows.csv", ("row", "nats_per_token", "token_accuracy"), lines)
    write_table(folder / "positions.csv", ("position", "nats_per_token"), enumerate(result.by_position.tolist(), 1))


def _hardest(result: LanguageMetrics) -> list[_HardRow]:
    """The rows with the largest cross entropy."""
    rows = np.argsort(-result.nats, kind="stable")[:_MOST_ROWS].tolist()
    length = len(result.by_position)
    return [_HardRow(row, float(result.per_token[row]), float(result.right[row] / length)) for row in rows]
