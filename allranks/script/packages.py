"""What a script needs installed: from the lock or list beside it, else from what it imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from allranks.script.sources import ScriptSource, imported_names

MADE = "# Made by `allranks init`."
CONDA_FILES = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml")
_PIP_LIST, _UV_LOCK, _PROJECT = "requirements.txt", "uv.lock", "pyproject.toml"
_ABOVE = 3  # folders in which a lock is looked for: the script's own and those above it, up to the repository's root

PACKAGE_NAMES = {
    "PIL": "pillow",
    "attr": "attrs",
    "azure.ai.ml": "azure-ai-ml",
    "azure.identity": "azure-identity",
    "azure.storage.blob": "azure-storage-blob",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "gitpython",
    "google.protobuf": "protobuf",
    "hydra": "hydra-core",
    "ignite": "pytorch-ignite",
    "jose": "python-jose",
    "magic": "python-magic",
    "pkg_resources": "setuptools",
    "pytorch_lightning": "pytorch-lightning",
    "sentence_transformers": "sentence-transformers",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Packages of an index that are imported under another name; what is installed here is asked first."""

_CLI = ("LightningCLI", "jsonargparse[signatures]")
_BESIDE = {
    "pandas": (("read_parquet", "pyarrow"), ("read_excel", "openpyxl")),
    "lightning": (_CLI,),
    "pytorch-lightning": (_CLI,),
}
"""What a package imports only where it is used so."""


@dataclass(frozen=True, slots=True)
class NeededPackages:
    """The lines for pip, or a conda file that says all; where they come from, and what is to be said of them."""

    lines: tuple[str, ...] = ()
    conda_file: Path | None = None
    origin: str = "its imports"
    notes: tuple[str, ...] = field(default_factory=tuple)

    def names(self, package: str) -> bool:
        """Whether a package is among them."""
        return any(re.match(rf"{re.escape(package)}\b(?!-)", line) for line in self.lines)


def needed_packages(sources: Sequence[ScriptSource], code: Path) -> NeededPackages:
    """Find what a script, the first of its sources, needs; versions are those installed here, where they fit."""
    imported = _imported_packages(sources, code)
    for folder in _folders(code):
        conda = next((folder / name for name in CONDA_FILES if _is_conda_file(folder / name)), None)
        if conda is not None:
            return NeededPackages(conda_file=conda, origin=conda.name)
        lines = _listed(folder)
        if lines:
            named = {_canonical(one) for one in map(_requirement_name, lines[1]) if one}
            missing = [one for one in imported if _canonical(one) not in named]
            notes = [f"{lines[0]} does not name {one}, which the script imports: {imported[one]}." for one in missing]
            return NeededPackages(tuple(map(_pinned, lines[1])), origin=lines[0], notes=tuple(notes))
    pins = [f"{name}=={_version(name)}" if _version(name) else name for name in imported]
    absent = [name for name in imported if not _version(name)]
    notes = [f"{name} is not installed here, so its version is open: {imported[name]}." for name in absent]
    return NeededPackages(tuple(sorted(pins, key=str.lower)), notes=tuple(notes))


def _is_conda_file(path: Path) -> bool:
    """Whether a file is one of conda's that somebody else has written: one of ours is made anew."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return "dependencies:" in text and not text.startswith(MADE)


def _folders(code: Path) -> Iterator[Path]:
    """The script's folder and those above it, as long as they are of one repository."""
    for folder in (code, *code.parents)[:_ABOVE]:
        yield folder
        if (folder / ".git").exists() or folder == Path.home():
            return
        if not any((above / ".git").exists() for above in folder.parents[:_ABOVE]):
            return


def _listed(folder: Path) -> tuple[str, list[str]] | None:
    """What a folder's lists name, each a line of pip's, with the list's name; None where there is none."""
    project = _toml(folder / _PROJECT)
    direct = project.get("project", {}).get("dependencies", []) if isinstance(project.get("project"), Mapping) else []
    locked = _toml(folder / _UV_LOCK).get("package", [])
    if locked and direct:
        versions = {str(one.get("name")): str(one.get("version")) for one in locked if isinstance(one, Mapping)}
        return _UV_LOCK, [_locked(str(line), versions) for line in direct]
    if (folder / _PIP_LIST).is_file():
        text = (folder / _PIP_LIST).read_text(encoding="utf-8-sig", errors="replace").replace("\\\n", " ")
        lines = [re.sub(r"(^|\s+)#.*|\s+--hash=\S+", "", line).strip() for line in text.splitlines()]
        return _PIP_LIST, [_relative_option(line, folder) for line in lines if line]
    return (_PROJECT, [str(line) for line in direct]) if direct else None


def _relative_option(line: str, folder: Path) -> str:
    """``-r other.txt`` with the path absolute: the list that is written lies elsewhere."""
    match = re.match(r"(-r|-c|--requirement|--constraint)[\s=]+(\S+)$", line)
    return f"{match[1]} {(folder / match[2]).resolve()}" if match else line


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _locked(line: str, versions: Mapping[str, str]) -> str:
    name = _requirement_name(line)
    version = versions.get(_canonical(name)) if name else None
    return f"{_with_extras(line)}=={version}" if version else line


def _with_extras(line: str) -> str:
    requirement = Requirement(line)
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return requirement.name + extras


def _pinned(line: str) -> str:
    """A line with the version that is installed here, if that is one it asks for."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return line
    version = _version(requirement.name)
    if requirement.url or requirement.marker or not version:
        return line
    fits = requirement.specifier.contains(version, prereleases=True)
    return f"{_with_extras(line)}=={version}" if fits else line


def _requirement_name(line: str) -> str:
    try:
        return Requirement(line).name
    except InvalidRequirement:
        return ""


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported_packages(sources: Sequence[ScriptSource], code: Path) -> dict[str, str]:
    """The packages that are imported, each with where; the standard library and the modules beside are none."""
    found: dict[str, str] = {}
    for source in sources:
        optional = set(_tried_imports(source.tree))
        for name, node in imported_names(source.tree):
            top = name.partition(".")[0]
            beside = (source.path.parent, code)
            if top in sys.stdlib_module_names or any(_is_module(folder, top) for folder in beside):
                continue
            package = _package(name)
            if package is None or (node in optional and not _version(package)):
                continue
            found.setdefault(package, f"import {name}, {source.place(node)}")
        for name, pairs in _BESIDE.items():
            for word, package in pairs:
                if name in found and word in source.text:
                    found.setdefault(package, f"{word}, {source.path.name}")
    return found


def _is_module(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir()


def _tried_imports(tree: ast.Module) -> Iterator[ast.stmt]:
    """Imports that may fail: those in a ``try``, or for type checkers alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            for inner in node.body:
                yield from (one for one in ast.walk(inner) if isinstance(one, ast.Import | ast.ImportFrom))


def _package(module: str) -> str | None:
    """The package of a module; None for a namespace of which only parts are packages, and no part is known."""
    parts = module.split(".")
    names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    known = next((PACKAGE_NAMES[name] for name in names if name in PACKAGE_NAMES), None)
    if known is not None:
        return known
    installed = _installed_packages().get(parts[0], [])
    close = [one for one in installed if _canonical(one) == _canonical(parts[0])]
    if installed:
        return close[0] if close else installed[0] if len(set(installed)) == 1 else None
    return None if parts[0] in ("azure", "google") else parts[0]


@cache
def _installed_packages() -> Mapping[str, Sequence[str]]:
    return metadata.packages_distributions()


def _version(package: str) -> str:
    """The version that is installed here, without the part that names its build; empty if it is not."""
    try:
        return metadata.version(package.partition("[")[0]).partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def conda_text(name: str, packages: Iterable[str], torch_index: str) -> str:
    """A conda file; where torch is among the packages, with the index of its build for CUDA 12.6."""
    lines = list(packages)
    head = (
        f"{MADE} It names what {name} needs: yours to change.\nname: {name}\nchannels: [conda-forge]\ndependencies:\n"
    )
    head += f"  - python={sys.version_info.major}.{sys.version_info.minor}\n  - pip\n"
    if not lines:
        return head
    if torch_index and any(re.match(r"torch\b(?!-)", line) for line in lines):
        lines.insert(0, f"--extra-index-url {torch_index}  # PyPI's torch is for CUDA 13, which needs newer drivers")
    return head + "  - pip:\n" + "".join(f"      - {line}\n" for line in lines)
