"""What is in a model folder, before anything of it is loaded; the standard library suffices.

Nothing in a folder is ever run: weights are safetensors, and a model whose code comes with it is refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shared.distributed import Refusal

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
FILES_WITH_CODE = (CONFIG, "tokenizer_config.json")


def check_folder(folder: str | Path) -> Path:
    """See that a folder holds a model that can be loaded without running code of its own.

    Raises:
        Refusal: naming all that is missing or must not be there.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise Refusal(f"base_model {folder} is no folder; give one with {CONFIG} and {WEIGHTS}.")
    problems = []
    if not (folder / CONFIG).is_file():
        problems.append(f"{CONFIG} is missing")
    problems += _weight_problems(folder)
    for name in FILES_WITH_CODE:
        if (folder / name).is_file() and "auto_map" in read_json(folder / name):
            problems.append(f"{name} asks for code of the folder's own (auto_map), which is never run")
    if problems:
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        raise Refusal(
            f"base_model {folder} cannot be used: {'; '.join(problems)}. It holds {there}. "
            f"model.save_pretrained(FOLDER) of transformers writes {CONFIG} and {WEIGHTS}."
        )
    return folder


def config_file(path: str | Path) -> Path:
    """Find the configuration in a file, or in a folder's `config.json`.

    Raises:
        Refusal: if there is none, or if it asks for code of its own.
    """
    path = Path(path)
    file = path / CONFIG if path.is_dir() else path
    if not file.is_file():
        raise Refusal(f"base_config {path} holds no {CONFIG}; give such a file, or the folder that it is in.")
    if "auto_map" in read_json(file):
        raise Refusal(f"base_config {file} asks for code of its own (auto_map), which is never run.")
    return file


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        Refusal: if it is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise Refusal(f"{path} cannot be read: {error}.") from error
    if not isinstance(found, dict):
        raise Refusal(f"{path} holds no JSON object.")
    return found


def _weight_problems(folder: Path) -> list[str]:
    if (folder / WEIGHTS).is_file():
        return []
    if (folder / WEIGHTS_INDEX).is_file():
        files = set(read_json(folder / WEIGHTS_INDEX).get("weight_map", {}).values())
        missing = sorted(name for name in files if not (folder / str(name)).is_file())
        return [f"{WEIGHTS_INDEX} names {', '.join(missing[:3])}, which is missing"] if missing else []
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        return [f"{WEIGHTS} is missing, and {', '.join(pickles[:3])} is a pickle, which is never read"]
    return [f"{WEIGHTS} is missing"]
