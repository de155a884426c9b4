"""Which arguments are paths that are read, and which are places that are written, by their names and values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePath


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OUTPUT_WORDS = _words("output outputs out outdir outfile save savedir saved result results export dest")
_PLACE_WORDS = _words("dir directory folder path paths file filename root location loc uri")
_FILE_WORDS = _words("file filename csv json yaml yml txt pickle pkl jsonl parquet")
_LAST_WORDS = _words("logdir workdir csv parquet pickle pkl jsonl npy")
_WRITTEN_WORDS = _words("log logs logdir checkpoint checkpoints ckpt ckpts model models runs work workdir")
_NOUNS = _words(
    "model models data metrics prediction predictions checkpoint checkpoints ckpt log logs trained prepared processed"
    " test train eval transformed raw score scored best final base report plot figure to in the artifact artifacts"
)
_INPUT_WORDS = _words("data input inputs corpus dataset datasets images train test val validation")
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}$")

READ, WRITTEN = "read", "written"
FILE, FOLDER = "uri_file", "uri_folder"


@dataclass(frozen=True, slots=True)
class PathRole:
    """What an argument that is a path is for: ``read`` or ``written``, a ``uri_file`` or a ``uri_folder``."""

    use: str
    type: str


def name_words(name: str) -> list[str]:
    """``--outputDir`` as ``output``, ``dir``."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name.lstrip("-"))
    return [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if word]


def path_role(name: str, value: str = "", *, is_path: bool = False) -> PathRole | None:
    """What an argument of text is for, by its name, its default or value, and whether its type is a path.

    Written: ``output``, ``save_dir``, ``model_output``, ``log_dir`` … Read: ``data``, ``input_path``, ``train_file`` …
    None for what is a text, such as ``output_format`` or ``dataset`` with the default ``cifar10``.
    """
    words = name_words(name)
    if "cache" in words or {"name", "or", "path"} <= set(words):
        return None  # written beside what is read; a hub's name as a rule
    rest = [word for word in words if word not in _OUTPUT_WORDS and word not in _PLACE_WORDS]
    has_place = any(word in _PLACE_WORDS for word in words) or is_path or bool(set(words[-1:]) & _LAST_WORDS)
    looks = looks_like_path(value)
    is_file = any(word in _FILE_WORDS for word in words) or bool(_SUFFIX.search(PurePath(value).name))
    kind = FILE if is_file else FOLDER
    if any(word in _OUTPUT_WORDS for word in words) and (has_place or looks or not set(rest) - _NOUNS):
        return PathRole(WRITTEN, kind)
    if has_place and rest and set(rest) <= _WRITTEN_WORDS and kind == FOLDER:
        return PathRole(WRITTEN, kind)
    names_data = any(word in _INPUT_WORDS for word in words)
    if has_place or looks or (names_data and not value and "dataset" not in words):
        return PathRole(READ, kind)
    return None


def used_as(name: str, text: str) -> str:
    """Whether a script, by its text, takes a path for a file or for a folder; empty where it does not say."""
    place = rf"(?:\w+\.)?{re.escape(name)}\b"
    listed = rf"(?:join|listdir|walk|scandir|glob|makedirs|ImageFolder)\({place}|{place}\.(?:glob|rglob|iterdir|mkdir)"
    joined = rf"{place}\s*/\s*[\"'\w]|\{{{place}\}}/|{place}\s*\+\s*[\"']/"
    if re.search(f"{listed}|{joined}", text):
        return FOLDER
    opened = rf"(?:open|read_\w+|load|loadtxt|to_\w+|savetxt|imread)\(\s*{place}"
    written = rf"(?:save|dump)\([^()\n]*,\s*{place}|{place}\.(?:read_|write_|open\()"
    return FILE if re.search(f"{opened}|{written}", text) else ""


def looks_like_path(value: str) -> bool:
    """Whether a text is written as people write paths: ``./data``, ``data/``, ``train.csv``; no address, no name."""
    if not value or "://" in value or value.startswith("azureml:") or any(char in value for char in "\n*{<"):
        return False
    return (
        value.startswith(("./", "../", "/", "~/"))
        or value.endswith("/")
        or bool(_SUFFIX.search(value))
        or ("/" in value and Path(value).exists())
    )
