"""Measure a trained model on one split of a prepared dataset: exact, whatever the number of ranks.

The split is cut into batches; rank r predicts batches r, r + world size, and so on. A batch holds the same rows on any
number of ranks, so its outputs are the same too. No row is padded or repeated. The ranks write their outputs to files
as they go; rank 0 reads them piece by piece, finds the worst of all rows, and only it draws. Of a language model no
logits are kept, only two sums for each row and one for each place in a row; the ranks share its samples.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from shared.data import Dataset, Index, Split, TextEncoding
from shared.data.dataset.encodings import TableEncoding
from shared.data.dataset.order import RowNumbers
from shared.distributed import Refusal, World, init
from shared.language import LanguageMetrics
from shared.metrics import measure_classification, measure_regression
from shared.models import ModelCard
from shared.models.predictor import (
    LanguageModel,
    load_language_model,
    load_predictor,
    read_card,
    tokenizer_of_model,
)
from shared.outputs import OutputParts
from shared.report import (
    RowReader,
    Sample,
    Subject,
    TokenText,
    draw_sample,
    sample_rows,
    write_classification,
    write_language,
    write_regression,
)
from shared.settings.command_line import read_settings
from shared.settings.fields import change, changed_group, input_port, output_port, settings_class
from shared.settings.running import TimeoutSettings
from shared.storage import remove_folder
from shared.tracking import Tracker

Sums = npt.NDArray[np.float64]
Conclusion = Callable[[], dict[str, float]]

_PARTS = ".parts"  # the ranks' outputs, in the output: the one folder that all nodes share; removed at the end
_LOGITS_AT_ONCE = 2**24  # of a language model: 64 MiB in float32, of which some copies are made
_SHOWN = ("accuracy", "rmse", "mae", "r2", "bits_per_byte", "gzip_bits_per_byte", "perplexity", "token_accuracy")


@settings_class
class Settings:
    """The inputs and outputs of this component; component.yaml is written from them."""

    data: Path = input_port("A prepared dataset, from Prepare data or Prepare text.")
    model: Path = input_port(
        "The model of a trainer of this library, trained on the same kind of data.", kind="mlflow_model"
    )
    split: Literal["train", "validation", "test"] = input_port("The part of the data that is measured.", default="test")
    batch_size: int = input_port(
        "Rows that a rank predicts at a time; fewer where the logits of a language model would fill the memory. "
        "Changes speed and memory, not the metrics.",
        default=256,
        least=1,
        most=1000000,
    )
    worst_rows: int = input_port(
        "Rows that are shown as they are (picture, text or columns), on the page and in worst_rows.json: the surest "
        "mistakes, the largest errors, or the hardest texts. With 0 and samples 0 the report holds no row of the data.",
        default=24,
        least=0,
        most=200,
    )
    samples: int = input_port(
        "Of a language model: beginnings of rows that it continues, up to 64 tokens each, on the page and in "
        "samples.json.",
        default=4,
        least=0,
        most=100,
    )
    timeouts: TimeoutSettings = changed_group(
        init_timeout=change("Minutes to wait until all ranks have started.", least=0.1),
        step_timeout=change("Minutes that the ranks give each other to finish their part.", default=60, least=0.1),
    )
    report: Path = output_port(
        "index.html with everything on one page, metrics.json, worst_rows.json, and the pictures. For classes "
        "predictions.csv, classes.csv, confusion_matrix.png, roc.png, calibration.png; for a regression "
        "predictions.csv, predicted_true.png, residuals.png, residual_histogram.png; for a language model "
        "samples.json, rows.csv, positions.csv, loss_by_position.png, row_losses.png.",
        mode="rw_mount",
    )


def main() -> None:
    """Evaluate the model that the command line names."""
    settings = read_settings(Settings, __doc__)
    with init("torch", timeout=settings.timeouts.start) as world, Tracker(world) as tracker:
        dataset = Dataset.open(settings.data)
        reader = RowReader(dataset, dataset.split(settings.split))
        card = read_card(settings.model)
        refuse_misfit(card, dataset.index, settings.model)

        measure = measure_language if dataset.index.task == "language_modeling" else measure_rows
        conclude = measure(settings, reader, card, world)
        world.barrier("predictions", timeout=settings.timeouts.step)
        numbers = world.once(conclude, name="report", scope="job", timeout=settings.timeouts.step)
        tracker.log(numbers, step=0)
        tracker.artifacts(settings.report)
        shown = [f"{name} {numbers[name]:.4f}" for name in _SHOWN if name in numbers]
        world.note(f"{', '.join(shown)} on {reader.split.rows} rows of {settings.split}")


def refuse_misfit(card: ModelCard, index: Index, model: Path) -> None:
    """Refuse a model that was trained on another kind of data.

    Raises:
        Refusal: with every reason.
    """
    if index.task != card.task:
        raise Refusal(f"the model was trained for {card.task}, the data was prepared for {index.task}.")
    problems = text_problems(card, index.text, model) if index.text else array_problems(card, index)
    if card.classes != index.classes:
        problems.append(f"the model knows {_named(card.classes)}, the data has {_named(index.classes)}")
    if index.target and card.target and card.target != index.target.name:
        problems.append(f"the model predicts {card.target!r}, the data's target is {index.target.name!r}")
    if problems:
        raise Refusal(f"model and data do not fit: {'; '.join(problems)}. Prepare the data as for the training.")


def array_problems(card: ModelCard, index: Index) -> list[str]:
    """What keeps a model from taking rows of numbers."""
    x, problems = index.arrays["x"], []
    if card.input_shape != x.shape:
        problems.append(f"the model takes rows of shape {card.input_shape}, the data has {x.shape}")
    if unlike := table_differences(card, index):
        problems.append(f"the tables' columns differ in what they were made of: {unlike}")
    if card.input_dtype != x.dtype:
        problems.append(f"the model was trained on {card.input_dtype}, the data holds {x.dtype}")
    return problems


def table_differences(card: ModelCard, index: Index) -> str:
    """Columns of a table whose values or fillings are others in the model than in the data."""
    if not card.table or not index.table:
        return ""
    theirs = TableEncoding.from_json(card.table)
    both = zip_longest(theirs.columns, index.table.columns)
    odd = [(one or other).name for one, other in both if one != other and (one or other)]
    return ", ".join(odd[:10])


def text_problems(card: ModelCard, text: TextEncoding, model: Path) -> list[str]:
    """What keeps a model from taking rows of tokens."""
    problems = []
    if tokenizer_of_model(model, card) != text.fingerprint:
        one, other = (
            "bytes" if name == "bytes" else "a tokenizer of its own" for name in (card.tokenizer, text.tokenizer)
        )
        different = "another tokenizer" if one == other else other
        problems.append(f"the model reads {one}, the data was prepared with {different}")
    if text.vocabulary > card.vocabulary:
        problems.append(f"the model knows {card.vocabulary} tokens, the data has {text.vocabulary}")
    longest = card.settings.get("context_length", card.sequence_length)
    if text.sequence_length > longest:
        problems.append(f"the model takes up to {longest} tokens, rows of the data have up to {text.sequence_length}")
    return problems


def measure_rows(settings: Settings, reader: RowReader, card: ModelCard, world: World) -> Conclusion:
    """Predict the rank's rows; what it gives writes the report, from the outputs of all ranks."""
    split = reader.split
    parts = OutputParts(settings.report / _PARTS, "rows", world.world_size, split.rows, settings.batch_size)
    model, _ = load_predictor(settings.model, world.device)
    finite = parts.write(world.rank, (model(split.take(rows)["x"]) for rows in parts.batches(world.rank)))
    refuse_diverged(finite=finite, world=world, folder=parts.folder)

    def conclude() -> dict[str, float]:
        numbers = write_report(settings, parts, labels_of(split), card, reader)
        remove_folder(parts.folder)
        return numbers

    return conclude


def measure_language(settings: Settings, reader: RowReader, card: ModelCard, world: World) -> Conclusion:
    """Score the rank's rows; what it gives writes the report, from the sums of all ranks."""
    split, text, folder = reader.split, reader.dataset.index.text, settings.report / _PARTS
    assert text is not None  # noqa: S101  # the task says so
    size = rows_at_once(settings.batch_size, text.sequence_length, card.vocabulary)
    by_row = OutputParts(folder, "rows", world.world_size, split.rows, size)
    by_place = OutputParts(folder, "places", world.world_size, -(-split.rows // size), 1)  # a line for each batch
    model = load_language_model(settings.model, world.device)
    sums, places = score_rows(model, split, by_row.batches(world.rank))
    finite = by_row.write(world.rank, sums) and by_place.write(world.rank, places)
    refuse_diverged(finite=finite, world=world, folder=folder)
    samples = draw_samples(settings, reader, model, text, world)

    def conclude() -> dict[str, float]:
        rows, batches = by_row.columns(), by_place.columns()
        remove_folder(folder)
        result = LanguageMetrics(
            text, split.name, rows[0], rows[1], np.ascontiguousarray(batches.T).sum(0) / split.rows
        )
        subject = Subject(card.architecture, split.name, (text.sequence_length,), vocabulary=text.vocabulary)
        write_language(settings.report, result, subject, samples, reader, settings.worst_rows)
        return result.numbers()

    return conclude


def draw_samples(
    settings: Settings, reader: RowReader, model: LanguageModel, text: TextEncoding, world: World
) -> list[Sample]:
    """Let the model continue some rows, which the ranks share; rank 0 gets all of them, in the order of the rows."""

    def continue_prompt(prompt: npt.NDArray[np.int64], count: int, seed: int) -> tuple[npt.NDArray[np.int64], Sums]:
        return model.sample(prompt, count, seed, text.vocabulary, text.end_of_text)

    read, rows = TokenText.open(reader.dataset, text), sample_rows(reader.split.rows, settings.samples)
    mine = rows[world.rank :: world.world_size]
    drawn = [draw_sample(row, reader.split, continue_prompt, model.score, read).to_json() for row in mine]
    everybody = world.collect(drawn, name="samples", timeout=settings.timeouts.step) or []
    return sorted((Sample(**one) for some in everybody for one in some), key=lambda sample: sample.row)


def write_report(
    settings: Settings, outputs: OutputParts, labels: npt.NDArray[Any], card: ModelCard, reader: RowReader
) -> dict[str, float]:
    """Write the report of a classification or regression, and give its numbers."""
    index, split, folder = reader.dataset.index, reader.split, settings.report
    text = index.text
    shape = (text.sequence_length,) if text else index.arrays["x"].shape
    if index.target is None:
        scores = measure_classification(outputs, labels)
        vocabulary = text.vocabulary if text else 0
        subject = Subject(card.architecture, split.name, shape, index.classes, vocabulary=vocabulary)
        write_classification(folder, scores, labels, subject, reader, settings.worst_rows)
        return scores.numbers()
    errors = measure_regression(outputs.columns().T, labels)
    subject = Subject(card.architecture, split.name, shape, target=index.target.name)
    write_regression(folder, errors, subject, reader, settings.worst_rows)
    return errors.numbers()


def _named(classes: tuple[str, ...]) -> str:
    shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    return f"{len(classes)} classes ({shown})"


def rows_at_once(batch_size: int, length: int, vocabulary: int) -> int:
    """Rows that a language model is given at a time: as many as were asked for, if their logits fit into memory."""
    return max(1, min(batch_size, _LOGITS_AT_ONCE // (length * vocabulary)))


def score_rows(model: LanguageModel, split: Split, batches: list[RowNumbers]) -> tuple[list[Sums], list[Sums]]:
    """Of each row the sum of its cross entropies and its right tokens; of each batch the sum at each place."""
    sums, places = [], []
    for rows in batches:
        nats, right = model.score(split.take(rows)["x"])
        wide = nats.astype(np.float64)
        sums.append(np.stack([wide.sum(1), right.sum(1)], axis=1))
        places.append(wide.sum(0, keepdims=True))
    return sums, places


def refuse_diverged(*, finite: bool, world: World, folder: Path) -> None:
    """Refuse, on every rank, a model whose outputs are not finite on any; the folder of the outputs goes away."""
    if world.any(not finite, "not finite"):
        if world.is_main:
            remove_folder(folder)
        raise Refusal("the model's outputs are not finite numbers: its training diverged. Try a lower learning_rate.")


def labels_of(split: Split) -> npt.NDArray[Any]:
    """Labels or targets of the whole split in row order; the rows, which are much more, are not read again."""
    labels = Split(split.name, split.folder, {"y": split.arrays["y"]}, split.shards)
    return labels.take(np.arange(split.rows))["y"]


if __name__ == "__main__":
    main()
