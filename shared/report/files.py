"""What every report is made of: metrics.json, tables, pictures, and one page that holds them all."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.report.shown_rows import ShownRow
from shared.storage import make_folder, write_bytes, write_text


@dataclass(frozen=True, slots=True)
class Subject:
    """What was evaluated: a model on rows of a shape (of a text: the most tokens of one), and what it predicts."""

    architecture: str
    split: str
    shape: tuple[int, ...]
    classes: tuple[str, ...] = ()
    target: str = ""
    vocabulary: int = 0

    @property
    def predicted(self) -> str:
        """What is predicted, for people."""
        if self.classes:
            return f"{len(self.classes)} {'class' if len(self.classes) == 1 else 'classes'}"
        return f"target {self.target}" if self.target else f"a vocabulary of {self.vocabulary} tokens"


@dataclass(frozen=True, slots=True)
class WorstRow:
    """A row that the model was bad at: what is told about it, by name, and the row itself."""

    row: int
    told: Mapping[str, float | str]
    shown: ShownRow


def write_files(
    folder: Path,
    template: str,
    subject: Subject,
    numbers: Mapping[str, float],
    headlines: Sequence[tuple[str, str]],
    images: Mapping[str, bytes],
    **more: Any,
) -> None:
    """Write `metrics.json`, the pictures, and `index.html` with the pictures inside: one file that can be sent around.

    The folder is made if needed; the template lies beside this file. `numbers` are flat metrics, with ``rows``;
    `headlines` title and text of those at the top; `images` PNG files by name.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    make_folder(folder)
    for name, content in images.items():
        write_bytes(folder / name, content)
    write_text(folder / "metrics.json", json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    # Names of classes and columns come from files of the user's: everything is escaped.
    templates = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=templates, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    page = environment.get_template(template).render(
        subject=subject,
        rows=int(numbers["rows"]),
        headlines=headlines,
        images={name: base64.b64encode(content).decode("ascii") for name, content in images.items()},
        **more,
    )
    write_text(folder / "index.html", page)


def write_worst_rows(folder: Path, worst: Sequence[WorstRow]) -> None:
    """Write `worst_rows.json`, the worst first."""
    write_records(folder / "worst_rows.json", [{"row": one.row, **one.told, **one.shown.to_json()} for one in worst])


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write a list as JSON."""
    write_text(path, json.dumps(records, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_table(path: Path, header: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """Write a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    write_bytes(path, text.getvalue().encode("utf-8"))
