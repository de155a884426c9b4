"""Raises the library's version in a checkout: in every file that states it or refers to an asset by it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from allranks import catalogue, library
from allranks.errors import StorageError, UsageError

_PARTS = ("major", "minor", "patch")

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?")
_TEXTS = (".md", ".py", ".toml", ".yaml", ".yml")
_FOLDERS = ("allranks", *library.FOLDERS, "docs", "tests")


@dataclass(frozen=True, slots=True)
class VersionChange:
    """What raising the version from the old to the new one writes: each file that changes, with its new text."""

    old: str
    new: str
    texts: dict[Path, str]


def version_change(to: str) -> VersionChange:
    """Find out what has to be written, and write nothing.

    Args:
        to: ``patch``, ``minor``, ``major``, or a version such as ``0.2.0`` or ``1.0.0rc1`` above the present one.

    Raises:
        UsageError: the library is installed rather than a checkout, ``to`` is no higher version, or a file that has to
            state the version states another one.
    """
    root, old = _checkout(), library.VERSION
    new = _next(old, to)
    texts = {}
    for path in _files(root):
        before = path.read_text(encoding="utf-8")
        after = _references(before, old, new)
        if (statement := _statement(path, root)) is not None:
            after, count = re.subn(statement.format(re.escape(old)), rf"\g<1>{new}\g<2>", after, flags=re.MULTILINE)
            if count == 0 and _must_state(path, root):
                message = f"{path} does not state the version {old} of the library, so that it cannot be raised."
                raise UsageError(message, f"Set it to {old} there, then try again.")
        if after != before:
            texts[path] = after
    return VersionChange(old, new, texts)


def write_change(change: VersionChange) -> None:
    """Write all files, each aside first; raises StorageError, with nothing replaced, unless all could be written."""
    aside = {path: path.with_name(f".{path.name}.raised") for path in change.texts}
    try:
        for path, text in change.texts.items():
            aside[path].write_text(text, encoding="utf-8")
            aside[path].chmod(path.stat().st_mode)
        for path, new in aside.items():
            new.replace(path)
    except OSError as error:
        for new in aside.values():
            new.unlink(missing_ok=True)
        message = f"cannot write {error.filename}: {error.strerror}."
        raise StorageError(message, "Make the checkout writable.") from error


def _checkout() -> Path:
    """The root of the checkout that this package runs from."""
    root = library.root()
    project = root / "pyproject.toml"
    if root.name != "_library" and project.is_file():
        with project.open("rb") as stream:
            if tomllib.load(stream).get("project", {}).get("name") == "allranks":
                return root
    message = f"the library in {root} is installed, and not a checkout: its version cannot be raised."
    raise UsageError(message, "Clone the repository, change what you need there, and run this in it.")


def _next(old: str, to: str) -> str:
    if to in _PARTS:
        numbers = [int(number) for number in old.split(".")[:3] if number.isdecimal()]
        numbers += [0] * (3 - len(numbers))
        place = _PARTS.index(to)
        return ".".join(map(str, [*numbers[:place], numbers[place] + 1, *[0] * (2 - place)]))
    from packaging.version import Version

    if _VERSION.fullmatch(to) is None:
        raise UsageError(f"{to!r} is no version.", f"Give {', '.join(_PARTS)}, or three numbers such as 0.2.0.")
    if Version(to) <= Version(old):
        raise UsageError(f"{to} is not above the present version, {old}.", "A published version never changes.")
    return to


def _files(root: Path) -> Iterator[Path]:
    """Every text of the repository that may name the version."""
    yield from sorted(path for path in root.iterdir() if path.suffix in (".toml", ".md"))
    for folder in _FOLDERS:
        for here, inner, names in os.walk(root / folder):
            inner[:] = sorted(name for name in inner if not name.startswith((".", "__pycache__", "_library")))
            yield from (Path(here, name) for name in sorted(names) if name.endswith(_TEXTS))


def _references(text: str, old: str, new: str) -> str:
    """``azureml:NAME:V`` and ``.../NAME/versions/V``, where NAME is an asset of the library."""
    names = "|".join(map(re.escape, (*catalogue.COMPONENTS, *catalogue.PIPELINES)))
    before = rf"(?:azureml:|/)(?:allranks-[\w-]+|{names})(?::|/versions/)"
    return re.sub(rf"({before}){re.escape(old)}(?![\w.+-])", rf"\g<1>{new}", text)


def _statement(path: Path, root: Path) -> str | None:
    """The pattern with which a file states the version: what stands before it, the version, what stands after it."""
    place = path.relative_to(root)
    if path.name == "pyproject.toml":
        return r'^(version = "){}(")$'
    if place.parts[0] in ("components", "environments") and path.name in ("component.yaml", "environment.yaml"):
        return r"""^(version: *["']?){}(["']? *)$"""
    if place.parts[:2] == ("docs", "components"):
        return r"^(\| version \| ){}( \|)$"
    if place.parts[0] == "components" and path.suffix == ".py":
        return r'^( *version="){}(",?)$'
    if place.parts[0] in ("allranks", "shared") and path.suffix == ".py":
        return r'^(VERSION = "){}(")$'
    return None


def _must_state(path: Path, root: Path) -> bool:
    """Whether a file has no choice: the package itself, and every asset."""
    assets = (*catalogue.component_files().values(), *catalogue.environment_files().values())
    return path in (root / "pyproject.toml", root / "allranks" / "library.py", *assets)
