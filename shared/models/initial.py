"""The weights that a training begins with: which file, which of them are taken over. No framework is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from .card import ModelCard
from .folder import WEIGHTS_NAME, open_model
from .stored import make_refusal

TensorShapes = Mapping[str, tuple[int, ...]]
"""Name of each weight to its shape."""

_SHOWN = 5
_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")


def saved_weights(folder: str | Path) -> Path:
    """Find the file of the weights of a saved model.

    Raises:
        Refusal: if the folder holds no model of this library.
    """
    return open_model(folder)[0] / WEIGHTS_NAME


def open_initial(folder: str | Path, card: ModelCard) -> tuple[Path, ModelCard, bool]:
    """Find the weights of a saved model that one described by a card is to begin with.

    Returns:
        the file of the weights; the card with the saved model's mean and standard deviation, for which its weights were
        trained; and whether it needs a new head, because it has other classes or predicts something else.

    Raises:
        Refusal: if the folder holds no model of this library, or one of another framework or architecture.
    """
    file, found = saved_weights(folder), open_model(folder)[1]
    for what, theirs, ours in (
        ("framework", found.framework, card.framework),
        ("architecture", found.architecture, card.architecture),
    ):
        if theirs != ours:
            raise make_refusal(
                f"initial_model {folder} is of {what} {theirs}; here it is {ours}. Give a model of the same {what}, or "
                "leave initial_model empty."
            )
    if len(found.mean) != len(card.mean):
        raise make_refusal(
            f"initial_model {folder} takes rows with {len(found.mean)} channels or features; the data has "
            f"{len(card.mean)}."
        )
    if _table_values(found) != _table_values(card):
        raise make_refusal(
            f"initial_model {folder} was trained on a table with other columns or other values of a category than the "
            "data has, so that its weights stand for something else. Prepare both from the same train rows, or leave "
            "initial_model empty."
        )
    other_head = (found.task, found.classes, found.target) != (card.task, card.classes, card.target)
    return file, replace(card, mean=found.mean, std=found.std), other_head


def _table_values(card: ModelCard) -> list[tuple[str, list[str] | None]]:
    """Columns of a table with their values, as JSON has them."""
    columns = card.table.get("columns", ())
    return [(column["name"], list(column["values"]) if "values" in column else None) for column in columns]


def differing_names(one: TensorShapes, other: TensorShapes) -> set[str]:
    """Names of the weights that differ in shape; between models of other numbers of outputs these are the head."""
    return {name for name in one.keys() & other.keys() if one[name] != other[name]}


def refuse_other_shapes(folder: str | Path, found: TensorShapes, wanted: TensorShapes, head: set[str]) -> None:
    """Refuse weights that do not fit; those of a new `head` need not.

    Raises:
        Refusal: naming the first ones, with both shapes.
    """
    misfits = describe_misfits(found, wanted, ignored=head)
    if misfits:
        raise make_refusal(
            f"initial_model {folder} does not fit: {misfits}. Only the head may differ: prepare the data in the "
            "form in which the model was trained, or leave initial_model empty."
        )


def describe_misfits(found: TensorShapes, wanted: TensorShapes, ignored: set[str]) -> str:
    """Name the first weights that are missing, too many, or of another shape; empty if there are none."""
    odd = [
        f"{name} {found.get(name, 'none')} here {wanted.get(name, 'none')}"
        for name in sorted(found.keys() | wanted.keys(), key=lambda name: (name not in wanted, name))
        if name not in ignored and found.get(name) != wanted.get(name)
    ]
    return "; ".join(odd[:_SHOWN]) + (f" and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else "")


def published_file(place: Path) -> Path:
    """Find the file of published weights: the place itself, or the one in that folder; safetensors before others.

    Raises:
        Refusal: if there is none, or more than one.
    """
    from shared.storage import list_folder  # a saved model has a copy of this folder alone

    if place.is_file() and place.suffix in _SUFFIXES:
        return place
    there = list_folder(place)
    files = [path for path in there if path.is_file() and path.suffix in _SUFFIXES]
    chosen = [path for path in files if path.suffix == ".safetensors"] or files
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        held = ", ".join(path.name for path in chosen)
    else:
        held = ", ".join(path.name for path in there[:5]) or ("nothing" if place.is_dir() else "no such file")
    raise make_refusal(
        f"initial_weights {place} has to be one file of {', '.join(_SUFFIXES)}, or a folder with one: {held}."
    )
