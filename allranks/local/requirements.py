"""Which interpreter runs a step: the environment that its component names, or the current one in its place."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from allranks import catalogue
from allranks.errors import CannotRunHereError
from allranks.local import environments
from allranks.spec import Component

# Two builds of one package: whoever has the one needs not have the other.
EQUIVALENT = {"tensorflow-cpu": "tensorflow"}


@dataclass(frozen=True, slots=True)
class Interpreters:
    """What will run the steps.

    Attributes:
        pythons: the interpreter of each step whose environment is built; the current one runs the others.
        notes: one line for each environment that is not ours, whose steps run in the current interpreter all the same.
    """

    pythons: Mapping[str, Path]
    notes: tuple[str, ...]


def choose_interpreters(
    components: Mapping[str, Component], home: Path, chosen: Mapping[str, Path] | None = None
) -> Interpreters:
    """Choose the interpreter of each step.

    Args:
        components: the component of each step, by the step's name.
        home: the folder ``.allranks``, in which environments are built.
        chosen: the interpreters that the user names, by step; nothing is asked of these.

    Raises:
        CannotRunHereError: an environment of ours is not built, and asks for packages that are not installed here.
    """
    steps: dict[str, list[str]] = {}
    pythons = dict(chosen or {})
    lacking: dict[str, str] = {}
    for name, component in components.items():
        if name not in pythons:
            steps.setdefault(_name(component), []).append(name)
    notes = []
    for reference, names in steps.items():
        folder = catalogue.environment_of(reference)
        if folder is not None:
            python = environments.interpreter(home, folder)
            if python is not None:
                pythons |= dict.fromkeys(names, python)
            else:
                lacking |= _lacking_here(folder, names)
        elif reference:
            message = f"environment {reference} is not emulated; the current Python runs it"
            notes.append(f"{', '.join(names)}: {message} (--python {names[0]}=PATH chooses another).")
    if lacking:
        raise CannotRunHereError(
            "\n".join(lacking.values()),
            f"Build: {' && '.join(f'allranks env build {folder}' for folder in lacking)}. What the library's own first"
            ' pipelines need, this brings too: pip install "allranks[local]".',
        )
    return Interpreters(pythons, tuple(notes))


def _lacking_here(folder: str, names: list[str]) -> dict[str, str]:
    """The environment, with what the current interpreter has not of it and for which steps; empty if it has all."""
    lacking = unmet(catalogue.environments()[folder].parent / "requirements.txt")
    if not lacking:
        return {}
    return {folder: f"{', '.join(names)}: the environment {folder!r} asks for {', '.join(lacking)}."}


def _name(component: Component) -> str:
    environment = component.environment
    return environment.reference or str(environment.file or "") or environment.inline or ""


def unmet(requirements: Path, packages: Path | None = None) -> list[str]:
    """The requirements of a file that an interpreter does not satisfy, each with what is installed.

    Args:
        requirements: the file, with one requirement in a line.
        packages: the folder in which the interpreter's packages are; None for the current one's.
    """
    from packaging.requirements import Requirement

    lacking = []
    for line in requirements.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if not text or text.startswith("-"):
            continue
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        version = _version(requirement.name, packages) or _version(EQUIVALENT.get(requirement.name), packages)
        if not version:
            lacking.append(f"{text} (not installed)")
        elif not requirement.specifier.contains(version, prereleases=True):
            lacking.append(f"{text} ({version} is installed)")
    return lacking


def _version(package: str | None, packages: Path | None) -> str:
    """The version of a package; empty if it is not there."""
    if package is None:
        return ""
    path = sys.path if packages is None else [str(packages)]
    return next((found.version for found in metadata.distributions(name=package, path=path)), "")
