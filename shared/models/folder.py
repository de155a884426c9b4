"""The folder that a model of any framework is saved in: what is alike in all of them. See `shared.models.package`."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from .card import ModelCard
from .mlmodel import environment_files, example_file, mlmodel_document, oldest_mlflow
from .stored import make_refusal

WEIGHTS_NAME: Final = "weights.safetensors"
CARD_NAME: Final = "card.json"
HUGGINGFACE_NAME: Final = "huggingface"
"""The folder inside that transformers reads: `config.json`, safetensors and the tokenizer's files."""

_TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json")
INSIDE: Final = Path("artifacts", "model")


def begin_model(folder: str | Path) -> Path:
    """Make the folder for the weights, empty, and return it; what an earlier attempt left in it is removed."""
    from shared.storage import make_folder, remove_folder  # a saved model has a copy of this folder alone

    inside = Path(folder) / INSIDE
    remove_folder(inside)
    make_folder(inside)
    return inside


def copy_tokenizer(tokenizer: str | Path | None, folder: Path) -> None:
    """Copy a tokenizer's files into a folder; None for bytes, which need none."""
    from shared.copies import copy_file

    for name in _TOKENIZER_FILES if tokenizer is not None else ():
        if (source := Path(tokenizer or "") / name).is_file():
            copy_file(source, folder / name)


def write_weights(inside: Path, tensors: Mapping[str, object]) -> None:
    """Write the weights, of torch or NumPy, into the folder that `begin_model` has made."""
    from shared.tensors import write_safetensors

    write_safetensors(inside / WEIGHTS_NAME, tensors)


def finish_model(
    folder: str | Path,
    card: ModelCard,
    installed: Mapping[str, str],
    folders: Mapping[str, str | Path | None] | None = None,
) -> None:
    """Write all that belongs to a saved model besides its weights into the folder that `begin_model` has made.

    `installed` are versions of the packages that it needs, by name; `folders` are copied beside the weights, by their
    names there; None is left out.
    """
    from shared.copies import copy_file, copy_folder
    from shared.storage import write_text

    folder, inside = Path(folder), Path(folder) / INSIDE
    write_text(inside / CARD_NAME, card.to_json())
    unwanted = _leaving_out(folder)
    for name, source in {"zoo": Path(__file__).parent, **(folders or {})}.items():
        if source is not None:
            copy_folder(Path(source), inside / name, unwanted)
    copy_file(Path(__file__).with_name("serve.py"), folder / "serve.py")
    texts = environment_files(platform.python_version(), installed, oldest_mlflow(card))
    for name, text in (texts | example_file(card)).items():
        write_text(folder / name, text)
    write_text(folder / "MLmodel", mlmodel_document(card, platform.python_version(), _bytes_below(folder)))


def _bytes_below(folder: Path) -> int:
    from shared.storage import list_folder

    return sum(_bytes_below(path) if path.is_dir() else path.stat().st_size for path in list_folder(folder))


def _leaving_out(model: Path) -> Callable[[str, list[str]], set[str]]:
    """What no copy has: caches, hidden files, and the model itself, which may lie in the folder of the user's code."""
    unwanted, place = shutil.ignore_patterns("__pycache__", "*.pyc", ".*"), model.resolve()

    def names_left_out(folder: str, names: list[str]) -> set[str]:
        return unwanted(folder, names) | {name for name in names if Path(folder, name).resolve() == place}

    return names_left_out


def open_model(folder: str | Path) -> tuple[Path, ModelCard]:
    """Find the weights' folder and the card of a saved model; `folder` may be the weights' folder itself.

    Raises:
        Refusal: if the folder holds no such model, or a damaged card.
    """
    folder = Path(folder)
    inside = folder if (folder / CARD_NAME).is_file() else folder / INSIDE
    if not (inside / CARD_NAME).is_file():
        raise make_refusal(f"{folder} holds no model of this library: there is no {INSIDE / CARD_NAME}.")
    return inside, ModelCard.read(inside / CARD_NAME)
