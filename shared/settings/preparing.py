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
class StorageSettings:
    """How pictures are kept."""

    image_storage: Literal["pixels", "encoded"] = input_port(
        "For image_folder: how images are kept. pixels are read fastest, and take a byte for each number. encoded "
        "keeps JPEG and PNG files as they are, which is much smaller for photographs; trainers decode them while they "
        "read, in as many threads as loader_workers says.",
        default="pixels",
    )
    encoded_size: int | None = input_port(
        "For image_storage encoded: shorter side in pixels to which larger images are reduced once, and encoded anew. "
        "At least image_size; 256 is usual for 224. Leave empty to keep the files byte for byte.",
        default=None,
        least=1,
        most=4096,
        unit="pixels",
    )

    @property
    def keeps_encoded(self) -> bool:
        """Whether pictures are kept as the bytes of files."""
        return self.image_storage == "encoded"

    def problems(self, dataset: str, image_size: int | None) -> Iterator[str]:
        """Say what keeps the pictures of a dataset from being kept so."""
        if self.keeps_encoded and dataset != "image_folder":
            yield f"image_storage encoded: {dataset} has no file for each image. Choose pixels, or image_folder."
        if self.encoded_size is None:
            return
        if not self.keeps_encoded:
            yield f"encoded_size {self.encoded_size} is for image_storage encoded. Leave it empty, or choose encoded."
        elif image_size is None or self.encoded_size < image_size:
            yield (
                f"encoded_size {self.encoded_size}: image_size is {image_size or 'empty'}. Give an image_size of "
                f"{self.encoded_size} or less."
            )


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
