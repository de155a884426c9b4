"""The user's own model: a function in a file of a folder, whatever framework it builds with."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .stored import make_refusal


@contextmanager
def own_function(
    what: str, architecture: str, model_code: str | Path | None, choices: str
) -> Iterator[tuple[Path, Callable[..., Any]]]:
    """The file and what it defines, while the file can import its neighbours.

    `architecture` is ``FILE.py:NAME`` in the folder `model_code`; messages call it `what`, and offer `choices`.

    Raises:
        Refusal: if there is no such file, if it cannot be imported, or if it has nothing of this name to call.
    """
    file, colon, name = architecture.partition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise make_refusal(f"{what} is not known: {choices} in model_code.")
    if model_code is None:
        raise make_refusal(f"{what} needs the input model_code: the folder in which {file} is.")
    folder = Path(model_code).resolve()
    path = (folder / file).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        there = ", ".join(sorted(p.name for p in folder.glob("*.py"))) or "no .py file"
        raise make_refusal(f"{what}: there is no {file} in {folder}, which holds {there}.")
    before = sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # the folder is an input, which nobody writes to
    try:
        yield path, _function(path, name)
    finally:
        sys.dont_write_bytecode = before
        sys.path.remove(str(folder))


def _function(path: Path, name: str) -> Callable[..., Any]:
    """Import a file under a name of its own and take a function out of it."""
    spec = importlib.util.spec_from_file_location(f"model_code_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and typing look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise make_refusal(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        own = [n for n, f in vars(module).items() if getattr(f, "__module__", "") == spec.name and callable(f)]
        raise make_refusal(f"{path} has no function or class {name}; it has {', '.join(own) or 'none'}.")
    return function
