"""The user's script and the modules beside it that it imports, as syntax trees; nothing is imported or run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from allranks.errors import UsageError
from allranks.request import NOTEBOOK, SCRIPT_SUFFIXES
from allranks.script.notebook import read_notebook

_MOST_MODULES = 300
_MOST_BYTES = 2**20  # of one module; more is data, written as Python


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """One file of a script: where it is, and its syntax tree."""

    path: Path
    text: str
    tree: ast.Module

    def place(self, node: ast.AST) -> str:
        """``train.py:12``, for messages."""
        return f"{self.path.name}:{getattr(node, 'lineno', 1)}"


def read_script(path: Path) -> ScriptSource:
    """Read a script or a notebook.

    Raises:
        UsageError: there is no such file, it is no text, or Python cannot read it; then with file, line and the text.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not there"
        beside = sorted(one.name for one in path.parent.glob("*") if one.suffix in SCRIPT_SUFFIXES and one.is_file())[
            :8
        ]
        hint = f"Scripts in {path.parent}: {', '.join(beside)}." if beside else "Give the path of a script."
        raise UsageError(f"the script {str(path)!r} {what}.", hint)
    try:
        text = read_notebook(path).text if path.suffix == NOTEBOOK else path.read_text(encoding="utf-8-sig")
        return ScriptSource(path, text, ast.parse(text))
    except SyntaxError as error:
        line = (error.text or "").strip()
        where = f"{path}:{error.lineno}" if path.suffix != NOTEBOOK else str(path)
        raise UsageError(f"{where}: {error.msg}: {line}", "Python cannot read the script; nothing has run.") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{path} is no script of Python: {error}.") from None
    except (RecursionError, MemoryError):
        raise UsageError(f"{path} is nested too deeply for Python's parser.", "Split its longest expression.") from None


def utf8_text(file: Path) -> str:
    """The text of a file beside a script; raises UsageError where it is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is not UTF-8 text: byte {error.start} is {error.reason}.", "Save it as UTF-8."
        ) from None


def with_local_modules(main: ScriptSource, root: Path) -> list[ScriptSource]:
    """The script, and the modules that it imports from its own folder or from ``root``, and these in turn."""
    found = {main.path.resolve(): main}
    waiting = [main]
    while waiting and len(found) < _MOST_MODULES:
        source = waiting.pop(0)
        for path in _imported_files(source, (main.path.parent, root)):
            if path.resolve() not in found and (read := _readable(path)) is not None:
                found[path.resolve()] = read
                waiting.append(read)
    return list(found.values())


def imported_names(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Each absolute import with its statement: ``torch.distributed`` for ``from torch import distributed`` too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node
            yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)


def dotted_name(node: ast.AST) -> str:
    """``torch.distributed.init_process_group`` of an expression of names and dots; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _imported_files(source: ScriptSource, roots: Sequence[Path]) -> Iterator[Path]:
    for name, _ in imported_names(source.tree):
        for root in dict.fromkeys(roots):
            yield from _module_files(root, name)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = source.path.parent
            for _ in range(node.level - 1):
                base = base.parent
            names = [node.module] if node.module else []
            for name in (*names, *(".".join([*names, alias.name]) for alias in node.names)):
                yield from _module_files(base, name)


def _module_files(root: Path, name: str) -> Iterator[Path]:
    place = root.joinpath(*name.split("."))
    yield from (path for path in (place.with_name(f"{place.name}.py"), place / "__init__.py") if path.is_file())


def _readable(path: Path) -> ScriptSource | None:
    """A module, unless it is broken: then running it says so better than we can."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        return read_script(path)
    except (OSError, UsageError):
        return None
