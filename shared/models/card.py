"""What a saved model is, besides its weights."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .stored import MOST_JSON_BYTES, make_refusal, read_stored

MODEL_FORMAT = "allranks-model/1"
LANGUAGE_MODELING = "language_modeling"
VERSION = "0.1.0"
"""The library's version, written into each card."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Description of a model, kept beside its weights as JSON.

    Attributes:
        architecture: a name of the zoo, ``decoder`` or ``FILE.py:FUNCTION``.
        input_shape: shape of one raw row as the dataset holds it; images are (height, width, channels). Of a language
            model: (sequence length it was trained with,).
        input_dtype: NumPy name of the raw rows' type, such as ``uint8``; ``int64`` for tokens.
        classes: names of the classes, in the order of the logits.
        mean: of each channel (the last axis), in raw units.
        std: standard deviation of each channel, in raw units.
        task: what the outputs mean; ``classification``: one logit for each class; ``regression``: the target's value;
            ``language_modeling``: one logit for each token that may come next, after each token;
            ``text_classification``: one logit for each class.
        library_version: version of the library that saved the model.
        columns: names of the features, where the rows are those of a table.
        target: name of what a regression predicts.
        target_mean: of the target, in its units; 0 for a classification.
        target_std: its standard deviation; 1 for a classification.
        framework: ``torch``, ``keras`` or ``transformers``.
        vocabulary: number of tokens, of a model that takes text.
        tokenizer: ``bytes`` or ``tokenizer``: the folder beside the card that holds it; empty without text.
        settings: sizes of a decoder, see `decoder.DecoderSettings`; of a model of transformers its `separator` alone.
        table: how rows of the user's table become those that the model takes, as `index.json` has it; empty for others.
        arguments: what the class in ``FILE.py:CLASS`` is called with, by name; None where the architecture is none.
    """

    architecture: str
    input_shape: tuple[int, ...]
    input_dtype: str
    classes: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    task: str = "classification"
    library_version: str = VERSION
    columns: tuple[str, ...] = ()
    target: str = ""
    target_mean: float = 0.0
    target_std: float = 1.0
    framework: str = "torch"
    vocabulary: int = 0
    tokenizer: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] | None = None
    table: Mapping[str, Any] = field(default_factory=dict)

    @property
    def category_sizes(self) -> tuple[int, ...]:
        """Of each feature the number of values, if it is the code of a category, else 0; empty if none is."""
        columns = self.table.get("columns", ())
        sizes = [len(column.get("values", ())) for column in columns]
        return (*sizes, *[0] * (self.input_shape[0] - len(sizes))) if any(sizes) else ()

    @property
    def network_shape(self) -> tuple[int, ...]:
        """Shape of a row as the network gets it, with a feature for each value of a category."""
        sizes = self.category_sizes
        return (sum(size or 1 for size in sizes),) if sizes else self.input_shape

    @property
    def sequence_length(self) -> int:
        """Tokens of a row that a language model was trained with."""
        return self.input_shape[0]

    @property
    def outputs(self) -> int:
        """Numbers that the model gives for each row; a language model: for each token of it."""
        if self.task == LANGUAGE_MODELING:
            return self.vocabulary
        return len(self.classes) if self.task in ("classification", "text_classification") else 1

    def to_json(self) -> str:
        """Text of `card.json`."""
        return json.dumps({"format": MODEL_FORMAT, **asdict(self)}, indent=2, ensure_ascii=False) + "\n"

    def check_sizes(self) -> None:
        """Raise ValueError where sizes, or statistics, are none that a model can have."""
        if not self.input_shape or min(self.input_shape) < 1:
            raise ValueError(f"input_shape {self.input_shape} has sizes below 1, or none")
        if not all(map(math.isfinite, (*self.mean, *self.std, self.target_mean, self.target_std))):
            raise ValueError("a mean or standard deviation is not a finite number")
        if len(self.mean) != len(self.std):
            raise ValueError(f"there are {len(self.mean)} means and {len(self.std)} standard deviations")
        if not all(isinstance(column, Mapping) for column in self.table.get("columns", ())):
            raise TypeError("a column of the table is no object")

    @classmethod
    def read(cls, path: Path) -> ModelCard:
        """Read the file of a card.

        Raises:
            Refusal: if it cannot be read, or is no card of this format.
        """
        try:
            text = read_stored(path, MOST_JSON_BYTES)
        except OSError as error:
            raise make_refusal(f"{path} cannot be read: {error.strerror or error}.") from error
        return cls.from_json(text, str(path))

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> ModelCard:
        """Read `card.json`; `source` names the file in errors.

        Raises:
            Refusal: if it is no card of this format.
        """
        try:
            found: Mapping[str, Any] = json.loads(text)
            if found["format"] != MODEL_FORMAT:
                raise make_refusal(f"{source} has the format {found['format']!r}; this library reads {MODEL_FORMAT!r}.")
            card = cls(
                architecture=str(found["architecture"]),
                input_shape=tuple(map(int, found["input_shape"])),
                input_dtype=str(found["input_dtype"]),
                classes=tuple(map(str, found["classes"])),
                mean=tuple(map(float, found["mean"])),
                std=tuple(map(float, found["std"])),
                task=str(found["task"]),
                library_version=str(found["library_version"]),
                columns=tuple(map(str, found["columns"])),
                target=str(found["target"]),
                target_mean=float(found["target_mean"]),
                target_std=float(found["target_std"]),
                framework=str(found["framework"]),
                vocabulary=int(found["vocabulary"]),
                tokenizer=str(found["tokenizer"]),
                settings={name: _number(value) for name, value in found["settings"].items()},
                table=dict(found["table"]),
                arguments=None if found["arguments"] is None else dict(found["arguments"]),
            )
            card.check_sizes()
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise make_refusal(f"{source} is damaged: {error!r}. Train and save the model again.") from error
        return card


def _number(value: Any) -> float:
    return value if isinstance(value, bool | float) else int(value)
