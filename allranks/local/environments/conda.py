"""Conda's environment files, read as requirements of pip's: most of what they name is on PyPI too.

The files: https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html; how packages are
written there: https://docs.conda.io/projects/conda/en/stable/user-guide/concepts/pkg-specs.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from allranks.errors import Problem, SpecError
from allranks.local.environments.pip_lines import read_pip_lines
from allranks.spec.document import read_yaml

_PIP_NAMES = {
    **dict.fromkeys(("pytorch", "pytorch-cpu", "pytorch-gpu"), "torch"),
    **dict.fromkeys(("tensorflow-gpu", "tensorflow-mkl", "tensorflow-eigen", "tensorflow-base"), "tensorflow"),
    **dict.fromkeys(("py-xgboost", "py-xgboost-cpu", "py-xgboost-gpu", "_py-xgboost-mutex"), "xgboost"),
    **dict.fromkeys(("opencv", "py-opencv", "libopencv"), "opencv-python-headless"),
    "dask-core": "dask",
    "faiss": "faiss-cpu",
    "keras-gpu": "keras",
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "numpy-base": "numpy",
    "pyqt": "PyQt5",
    "pytables": "tables",
    "python-graphviz": "graphviz",
    "ruamel_yaml": "ruamel.yaml",
    "seaborn-base": "seaborn",
}
"""Python packages that conda calls otherwise than PyPI."""
_INTERPRETER = frozenset(["pip", "python"])  # every environment has them
_NO_PIP = re.compile(
    r"cuda.*|cudatoolkit.*|cudnn|nccl|pytorch-cuda|pytorch-mutex|cpuonly|nomkl|mkl|blas|intel-openmp|openblas"
    r"|openssl|ca-certificates|python_abi|readline|sqlite|tk|xz|zlib|bzip2|ncurses|libffi|_libgcc_mutex|_openmp_mutex"
    r"|libgcc.*|libstdcxx.*|libblas|liblapack|libopenblas|ld_impl_.*|nodejs|yarn|openmpi|mpich|gcc.*|gxx.*|make|git"
    r"|graphviz|ffmpeg|openjdk|java-jdk|r|r-.*|libsndfile|sox|tesseract|poppler|proj|geos|pandoc|curl|wget|perl|jq"
    r"|compilers|c-compiler|cxx-compiler|libaio|libxcrypt|glib|gtk.*|unixodbc|vim|tree|htop|conda.*|mamba"
)
"""What is no Python package: parts of conda's own world, programs, libraries for GPUs that wheels bring along."""
_SPEC = re.compile(
    r"(?:[^\s:]+::)?(?P<name>[\w.-]+)\s*(?:\[(?:.*\bversion\s*=\s*['\"](?P<bracket>[^'\"]*)['\"])?.*\])?\s*(?P<rest>.*)"
)


@dataclass(frozen=True, slots=True)
class CondaPart:
    """What a conda file asks for; the fields are those of ``EnvironmentRecipe``."""

    python: str
    conda: tuple[str, ...]
    pip: tuple[str, ...]
    unmet: tuple[str, ...]
    variables: Mapping[str, str]
    document: Mapping[str, Any] | None
    folder: Path


def read_conda_file(file: Path) -> CondaPart:
    """Read a conda environment file; SpecError if it cannot be read or a package makes no sense."""
    document, _ = read_yaml(file)
    return read_conda_part(document, file.parent)


def read_conda_part(document: Mapping[str, Any], folder: Path) -> CondaPart:
    """Read a conda environment that was written in place; paths of its pip lines start from ``folder``.

    Raises:
        SpecError: a package or a line makes no sense, or a file that is named is not there.
    """
    listed = document.get("dependencies") or []
    if not isinstance(listed, list):
        raise SpecError([Problem("'dependencies' of a conda environment has to be a list of packages.", file=folder)])
    nested = [item["pip"] for item in listed if isinstance(item, Mapping) and item.get("pip")]
    lines = [str(line) for each in nested for line in (each if isinstance(each, list) else [each])]
    python, conda, unmet = read_conda_specs(str(item) for item in listed if not isinstance(item, Mapping))
    written = document.get("variables")
    variables = {str(name): str(value) for name, value in written.items()} if isinstance(written, Mapping) else {}
    pip = read_pip_lines(lines, folder)
    return CondaPart(python, conda, pip, unmet, MappingProxyType(variables), document, folder)


def read_conda_specs(specs: Iterable[str]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Packages as conda writes them: the version of Python, requirements of pip's, and what pip has not.

    Raises:
        SpecError: one makes no sense.
    """
    python, found, unmet = "", [], []
    for spec in specs:
        match = _SPEC.fullmatch(spec.strip())
        if match is None:
            raise SpecError([Problem(f"{spec!r} is no package of conda's.", hint="Write name, or name=version.")])
        name = match["name"].lower()
        if name == "python":
            python = _python_version(match["bracket"] or match["rest"])
        elif _NO_PIP.fullmatch(name):
            unmet.append(spec.strip())
        elif name not in _INTERPRETER:
            found.append(_requirement(spec, _PIP_NAMES.get(name, name), match["bracket"] or match["rest"]))
    return python, tuple(dict.fromkeys(found)), tuple(unmet)


def spec_name(spec: str) -> str:
    """The name in a package as conda writes it, without channel and version; empty if it makes no sense."""
    match = _SPEC.fullmatch(spec.strip())
    return match["name"].lower() if match else ""


def _python_version(text: str) -> str:
    """``3.11`` of ``=3.11.4``, ``>=3.8,<3.12`` (the least) and the like; empty if nothing is said."""
    found = re.search(r"(?<![<\d.])(?<!<=)\b(\d+\.\d+)", re.sub(r"[<!]=?\s*[\d.]+", "", text))
    return found[1] if found else ""


def _requirement(spec: str, name: str, version: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(name + _pip_version(version.strip()))
    except InvalidRequirement:
        raise SpecError(
            [Problem(f"{spec!r}: {version!r} is no version.", hint="Write name, or name=version.")]
        ) from None
    return str(requirement)


def _pip_version(text: str) -> str:
    """A version as conda writes it, in pip's words; builds are left out, since wheels have others.

    ``=1.2`` takes every 1.2.x; ``1.2`` after a space that one alone.
    """
    text = re.sub(r"\s*,\s*", ",", text)
    if not text or text.startswith("*") or "|" in text:  # of alternatives pip can be told none
        return ""
    if text.startswith("=") and not text.startswith("=="):
        version = text[1:].strip().partition("=")[0].split(" ")[0].rstrip("*").rstrip(".")
        return f"=={version}.*" if version else ""
    text = re.sub(r"([<>=!~])\s+", r"\1", text).split(" ")[0]
    if text[0].isdigit():
        text = f"=={text.partition('=')[0]}"
    return ",".join(_whole_star(part) for part in text.split(","))


def _whole_star(part: str) -> str:
    """``==1.2*`` as ``==1.2.*``; a star after ``>=`` means nothing."""
    operator, version = re.fullmatch(r"([<>=!~]*)(.*)", part).groups()  # type: ignore[union-attr]
    version = version.partition("=")[0]
    bare = version.rstrip("*").rstrip(".")
    return f"{operator}{bare}.*" if version.endswith("*") and operator in ("==", "!=") else f"{operator}{bare}"
