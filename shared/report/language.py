"""Write a language model's report: metrics.json, samples.json, worst_rows.json, tables, pictures, and index.html."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shared.language import LanguageMetrics
from shared.report.files import Subject, WorstRow, write_files, write_records, write_table, write_worst_rows
from shared.report.samples import Sample
from shared.report.shown_rows import RowReader

_HEADLINES = {
    "bits_per_byte": "Bits per byte",
    "gzip_bits_per_byte": "gzip, bits per byte",
    "perplexity": "Perplexity",
    "loss": "Nats per token",
    "token_accuracy": "Token accuracy",
}


def write_language(
    folder: Path, result: LanguageMetrics, subject: Subject, samples: list[Sample], reader: RowReader, worst: int
) -> None:
    """Write all files of the report into a folder, which is made if needed; the worst rows are that many at most."""
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
    hardest = np.argsort(-result.nats, kind="stable")[:worst]
    hard = [
        WorstRow(int(row), {"nats_per_token": float(nats[row]), "token_accuracy": float(accuracy[row])}, shown)
        for row, shown in zip(hardest, reader.show(hardest), strict=True)
    ]
    more = {"worst": hard, "saved": saved, "samples": samples}
    write_files(folder, "language.html", subject, numbers, headlines, images, **more)
    write_worst_rows(folder, hard)
    write_records(folder / "samples.json", [sample.to_json() for sample in samples])
    lines = zip(range(len(nats)), nats.tolist(), accuracy.tolist(), strict=True)
    write_table(folder / "rows.csv", ("row", "nats_per_token", "token_accuracy"), lines)
    write_table(folder / "positions.csv", ("position", "nats_per_token"), enumerate(result.by_position.tolist(), 1))
