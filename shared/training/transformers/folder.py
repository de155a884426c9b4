"""What is in a model folder, before anything of it is loaded; the standard library suffices.

Nothing in a folder is ever run: weights are safetensors, and a model whose code comes with it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from shared.distributed import Refusal
from shared.storage import JSON_BYTES, list_folder, read_bytes

_CONFIG = "config.json"
_WEIGHTS = "model.safetensors"
_WEIGHTS_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_FILES_WITH_CODE = (_CONFIG, "tokenizer_config.json")


def check_model_folder(folder: str | Path) -> Path:
    """See that a folder holds a model that can be loaded without running code of its own.

    Raises:
        Refusal: naming all that is missing or must not be there.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise Refusal(f"base_model {folder} is no folder; give one with {_CONFIG} and {_WEIGHTS}.")
    problems = []
    if not (folder / _CONFIG).is_file():
        problems.append(f"{_CONFIG} is missing")
    problems += _weight_problems(folder)
    for name in _FILES_WITH_CODE:
        if (folder / name).is_file() and "auto_map" in _read_json(folder / name):
            problems.append(f"{name} asks for code of the folder's own (auto_map), which is never run")
    if problems:
        there = ", ".join(path.name for path in list_folder(folder)[:8]) or "nothing"
        raise Refusal(
            f"base_model {folder} cannot be used: {'; '.join(problems)}. It holds {there}. "
            f"model.save_pretrained(FOLDER) of transformers writes {_CONFIG} and {_WEIGHTS}."
        )
    return folder


def find_config(path: str | Path) -> Path:
    """Find the configuration in a file, or in a folder's `config.json`.

    Raises:
        Refusal: if there is none, or if it asks for code of its own.
    """
    path = Path(path)
    file = path / _CONFIG if path.is_dir() else path
    if not file.is_file():
        raise Refusal(f"base_config {path} holds no {_CONFIG}; give such a file, or the folder that it is in.")
    if "auto_map" in _read_json(file):
        raise Refusal(f"base_config {file} asks for code of its own (auto_map), which is never run.")
    return file


def _read_json(path: Path) -> Mapping[str, object]:
    """Read a JSON object.

    Raises:
        Refusal: if it is none.
    """
    try:
        found: object = json.loads(read_bytes(path, JSON_BYTES))
    except (ValueError, OSError, RecursionError) as error:
        raise Refusal(f"{path} cannot be read: {error}.") from error
    if not isinstance(found, dict):
        raise Refusal(f"{path} holds no JSON object.")
    return found


def _weight_problems(folder: Path) -> list[str]:
    if (folder / _WEIGHTS).is_file():
        return []
    if (folder / _WEIGHTS_INDEX).is_file():
        weight_map = cast("Mapping[str, object]", _read_json(folder / _WEIGHTS_INDEX).get("weight_map", {}))
        names = set(map(str, weight_map.values()))
        missing = sorted(name for name in names if Path(name).name != name or not (folder / name).is_file())
        return [f"{_WEIGHTS_INDEX} names {', '.join(missing[:3])}, which is missing"] if missing else []
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        return [f"{_WEIGHTS} is missing, and {', '.join(pickles[:3])} is a pickle, which is never read"]
    return [f"{_WEIGHTS} is missing"]
