"""What the components that prepare data have in common: what is read, and how it is divided into splits and shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from shared.settings.fields import Input
from shared.settings.training import LARGEST_SEED


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """What is read; a component says which datasets there are."""

    data: Annotated[Path | None, Input("Folder with your files.")] = None
    dataset: Annotated[str, Input("What is read.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSettings:
    """What is done about files that cannot be used, and which rows go where."""

    on_bad_file: Annotated[
        Literal["fail", "skip"],
        Input(
            "When a file is truncated, too large or not what its name says: fail stops and names it; skip leaves it "
            "out and names it in skipped.csv. A table with an impossible value is left out as a whole file."
        ),
    ] = "fail"
    validation_fraction: Annotated[
        float, Input("Share of all rows that goes into validation, with the classes in proportion.", least=0, most=0.9)
    ] = 0.1
    test_fraction: Annotated[
        float, Input("Share of all rows that goes into test, with the classes in proportion.", least=0, most=0.9)
    ] = 0.2
    seed: Annotated[
        int,
        Input(
            "Decides which rows go into which split; the same seed gives the same splits.", least=0, most=LARGEST_SEED
        ),
    ] = 0
    rows_per_shard: Annotated[
        int | None,
        Input(
            "Rows in each file. Leave empty for files of about 16 MB. Nodes and cores share the work file by file; "
            "larger files mean fewer of them.",
            least=1,
            most=10_000_000,
        ),
    ] = None

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
