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
from packaging.specifiers import SpecifierSet

from allranks.local.environments.conda import read_conda_file
from allranks.local.environments.pip_lines import read_pip_lines
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
    "azureml.core": "azureml-core",
    "azureml.mlflow": "azureml-mlflow",
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

_MLFLOW, _TRACKING = ("mlflow", "mlflow-skinny"), "azureml-mlflow"
_MLFLOW_USE = re.compile(r"\bM[Ll][Ff]low[A-Z]\w*|'mlflow'")
"""How a framework is told to log to MLflow, which the script then need not import: ``MLFlowLogger``, a ``'mlflow'``."""

_RULE = "Azure ML's tracking server takes MLflow below 3, with azureml-mlflow"
_BESIDE_AZURE = {name: SpecifierSet("<3") for name in (*_MLFLOW, "pandas")} | {
    "azure-storage-blob": SpecifierSet("<=12.27.1"),
    "packaging": SpecifierSet("<25"),
    "protobuf": SpecifierSet("<7"),
    "pyarrow": SpecifierSet("<20"),
}
"""The MLflow that Azure ML's tracking server takes; then what MLflow 2.22.5 and azureml-mlflow 1.62 take."""


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
            part = read_conda_file(conda)
            _, notes = _with_versions([*part.conda, *part.pip], conda.name)
            return NeededPackages(conda_file=conda, origin=conda.name, notes=tuple(notes))
        listed = _listed(folder)
        if listed:
            origin, lines = listed
            named = {_canonical(one) for one in map(_requirement_name, lines) if one}
            mlflow = () if named.isdisjoint((*_MLFLOW, _TRACKING)) else _MLFLOW
            missing = [one for one in imported if _canonical(one) not in (*named, *mlflow)]
            pinned, notes = _with_versions(lines, origin)
            notes += [f"{origin} does not name {one}, which the script imports: {imported[one]}." for one in missing]
            return NeededPackages(tuple(pinned), origin=origin, notes=tuple(notes))
    pins, _ = _with_versions([*imported], "")
    others = {line: version for line in pins if "<" in line and (version := _version(_requirement_name(line)))}
    notes = [f"conda.yaml has {line}, where {others[line]} is installed here: {_RULE}." for line in others]
    absent = [name for name in imported if not _version(name)]
    notes += [f"{name} is not installed here, so its version is open: {imported[name]}." for name in absent]
    return NeededPackages(tuple(sorted(pins, key=str.lower)), notes=tuple(notes))


def _with_versions(lines: Sequence[str], origin: str) -> tuple[list[str], list[str]]:
    """Return the lines with versions and with what Azure ML's tracking server needs, and a note where they differ.

    Lines that allow MLflow 2 are limited to it, and get azureml-mlflow beside them. Lines that ask for MLflow 3 stay.
    """
    used = {name: line for line in lines if (name := _canonical(_requirement_name(line))) in (*_MLFLOW, _TRACKING)}
    asked = [Requirement(line).specifier for name, line in used.items() if name in _MLFLOW]
    tried = ["2.13.0", "2.22.5", "3.0.0", "99", *(one.version.removesuffix(".*") for each in asked for one in each)]
    fits = [
        {_BESIDE_AZURE["mlflow"].contains(one, True) for one in tried if each.contains(one, True)} for each in asked
    ]
    lacking = [one for one, is_there in ((_TRACKING, _TRACKING in used), (_MLFLOW[1], fits)) if used and not is_there]
    note = f"{origin} names {', '.join(used.values())}. {_RULE}: write 'mlflow<3' and 'azureml-mlflow' there."
    notes = [note] if lacking or (used and {True} not in fits) else []
    if not used or {False} in fits:
        return [_pinned(line, {}) for line in lines], notes
    return [_pinned(line, _BESIDE_AZURE) for line in (*lines, *lacking)], notes


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
        text = (folder / _PIP_LIST).read_text(encoding="utf-8-sig", errors="replace")
        lines = read_pip_lines(text.splitlines(), folder.resolve())
        return _PIP_LIST, [re.sub(r"\s+--hash=\S+", "", line) for line in lines]
    return (_PROJECT, [str(line) for line in direct]) if direct else None


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


def _pinned(line: str, limits: Mapping[str, SpecifierSet]) -> str:
    """A line with the version that is installed here, if the line and its limit allow that; else with the limit."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return line
    version, limit = _version(requirement.name), limits.get(_canonical(requirement.name))
    if requirement.url or requirement.marker or not (version or limit):
        return line
    asked = requirement.specifier & (limit or SpecifierSet())
    if version and asked.contains(version, prereleases=True):
        return f"{_with_extras(line)}=={version}"
    return f"{_with_extras(line)}{asked}" if limit and "==" not in line else line


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
        use = _MLFLOW_USE.search(ast.unparse(source.tree))
        if use and found.keys().isdisjoint(_MLFLOW):
            found[_package("mlflow") or "mlflow"] = f"{use[0]}, {source.path.name}"
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
        others = set(installed).intersection(_MLFLOW) or set(installed)
        return close[0] if close else others.pop() if len(others) == 1 else None
    return None if parts[0] in ("azure", "azureml", "google") else parts[0]


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
