"""What the components that prepare data have in common: what is read, and how it is divided into splits and shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from shared.settings.fields import input_port, settings_class
from shared.settings.training import LARGEST_SEED


@settings_class
class SourceSettings:
    """What is read; a component says which datasets there are."""

    data: Path | None = input_port("Folder with your files.", default=None)
    dataset: str = input_port("What is read.")


@settings_class
class SplitSettings:
    """What is done about files that cannot be used, and which rows go where."""

    on_bad_file: Literal["fail", "skip"] = input_port(
        "When a file is truncated, too large or not what its name says: fail stops and names it; skip leaves it out "
        "and names it in skipped.csv. A table with an impossible value is left out as a whole file.",
        default="fail",
    )
    validation_fraction: float = input_port(
        "Share of all rows that goes into validation, with the classes in proportion.", default=0.1, least=0, most=0.9
    )
    test_fraction: float = input_port(
        "Share of all rows that goes into test, with the classes in proportion.", default=0.2, least=0, most=0.9
    )
    seed: int = input_port(
        "Decides which rows go into which split; the same seed gives the same splits.",
        default=0,
        least=0,
        most=LARGEST_SEED,
    )
    rows_per_shard: int | None = input_port(
        "Rows in each file. Leave empty for files of about 16 MB. Nodes and cores share the work file by file; larger "
        "files mean fewer of them.",
        default=None,
        least=1,
        most=10_000_000,
    )

    @property
    def skip_bad(self) -> bool:
        """Whether files that cannot be used are left out."""
        return self.on_bad_file == "skip"

    def problems(self) -> Iterator[str]:
        """What the ranges alone do not rule out."""
        validation, test = self.validation_fraction, self.test_fraction
        if validation + test >= 1:
            yield (
                f"validation_fraction {validation} + test_fraction {test} = {validation + test:g}: together they leave "
                "a part below 1 for train."
            )
