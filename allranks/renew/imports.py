"""Which files import which, read from the files themselves: nothing is imported for it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal

ImportMoment = Literal["start", "call", "types"]
"""When an import happens: with its module, when a function is called, or never, under ``if TYPE_CHECKING``."""


@dataclass(frozen=True, slots=True)
class ImportedName:
    """One name that a file imports, a module's (``shared.data.dataset.index``) or one in it."""

    name: str
    moment: ImportMoment
    line: int


@dataclass(frozen=True)  # without slots, for the cached property
class SourceTree:
    """Python files by the place that they have on a node, which is relative and has forward slashes."""

    files: Mapping[str, Path]

    @cached_property
    def modules(self) -> Mapping[str, str]:
        """Dotted name to place."""
        return {_module_name(place): place for place in self.files if place.endswith(".py")}

    def parsed(self, place: str) -> ast.Module:
        """The syntax tree of a file; raises SyntaxError if it is not Python."""
        file = self.files[place]
        return _parsed(file, file.stat().st_mtime_ns)

    def imports(self, place: str) -> list[ImportedName]:
        """All that a file imports, in functions and under ``TYPE_CHECKING`` too; relative names are made absolute."""
        package = list(PurePosixPath(place).parent.parts)
        return [found for node in self.parsed(place).body for found in _imports_below(node, package, "start")]

    def targets(self, place: str, moments: Iterable[ImportMoment] = ("start", "call")) -> set[str]:
        """The places of the tree's own modules that a file imports, without the packages above them."""
        names = (found.name for found in self.imports(place) if found.moment in moments)
        return {target for name in names if (target := self.place_of(name)) is not None} - {place}

    def packages_above(self, place: str) -> set[str]:
        """The ``__init__.py`` that Python runs before it imports this file."""
        parents = PurePosixPath(place).parents
        return {inside for parent in parents if (inside := str(parent / "__init__.py")) in self.files} - {place}

    def place_of(self, name: str) -> str | None:
        """The file of the tree that defines a dotted name; None for what other packages define."""
        return self.modules.get(name) or self.modules.get(name.rpartition(".")[0])


@lru_cache(maxsize=1024)
def _parsed(file: Path, written: int) -> ast.Module:
    """Parsed once for all components; ``written`` tells a file that has changed since."""
    del written
    return ast.parse(file.read_bytes(), str(file))


def _module_name(place: str) -> str:
    return place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports_below(node: ast.AST, package: list[str], moment: ImportMoment) -> Iterator[ImportedName]:
    """The imports in one statement; what it holds happens at its moment, or later."""
    if isinstance(node, ast.Import):
        yield from (ImportedName(alias.name, moment, node.lineno) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else []
        source = ".".join([*above, *([node.module] if node.module else [])])
        yield from (ImportedName(f"{source}.{alias.name}", moment, node.lineno) for alias in node.names)
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        yield from (found for inner in node.body for found in _imports_below(inner, package, "types"))
        yield from (found for inner in node.orelse for found in _imports_below(inner, package, moment))
    else:
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and moment == "start"
        for inner in ast.iter_child_nodes(node):
            yield from _imports_below(inner, package, "call" if later else moment)
