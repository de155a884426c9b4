"""Write a language model's report: metrics.json, rows.csv, positions.csv, the pictures, and index.html."""

from __future__ import annotations

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


def write_language(folder: Path, result: LanguageMetrics, subject: Subject) -> None:
    """Write all files of the report into a folder, which is made if needed."""
    # Only the one process that draws pays for this import.
    from shared.report import pictures

    numbers = result.numbers()
    nats, accuracy = result.per_token, result.right / len(result.by_position)
    images = {
        "loss_by_position.png": pictures.loss_by_position(result.by_position),
        "row_losses.png": pictures.draw_histogram(nats, float(nats.mean()), "nats per token"),
    }
    headlines = [(title, f"{numbers[name]:.4g}") for name, title in _HEADLINES.items() if name in numbers]
    saved = 1 - numbers["bits_per_byte"] / numbers["gzip_bits_per_byte"]
    hardest = np.argsort(-result.nats, kind="stable")[:_MOST_ROWS]
    hard = list(zip(hardest, nats[hardest], accuracy[hardest], strict=True))
    write_files(folder, "language.html", subject, numbers, headlines, images, hard=hard, saved=saved)
    lines = zip(range(len(nats)), nats.tolist(), accuracy.tolist(), strict=True)
    write_table(folder / "rows.csv", ("row", "nats_per_token", "token_accuracy"), lines)
    write_table(folder / "positions.csv", ("position", "nats_per_token"), enumerate(result.by_position.tolist(), 1))
