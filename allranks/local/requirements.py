"""Which interpreter runs a step: the environment that its component names, or the current one in its place."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from allranks import catalogue
from allranks.errors import CannotRunHereError
from allranks.local.environments import library as environments
from allranks.local.environments.building import package_folder
from allranks.local.environments.choice import choose_environments, environment_label
from allranks.local.environments.step_environment import StepEnvironment
from allranks.local.launch import LAUNCHERS
from allranks.local.plan import PlannedStep

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# Two builds of one package: whoever has the one needs not have the other.
EQUIVALENT_PACKAGES = {"tensorflow-cpu": "tensorflow"}
_OPTIONAL = "optional.txt"  # what only some uses of an environment need
_ONE_VERSION = ("torch", "keras", "mlflow-skinny")
"""What a pipeline has in one version only: what one step writes, such as a model, another one reads."""


@dataclass(frozen=True, slots=True)
class ChosenInterpreters:
    """The interpreter of each step that has one of its own; the current one runs the others.

    Attributes:
        pythons: by step; some are there only when ``environments`` are built.
        environments: by step, those that are not ours.
        notes: one for each environment of which nothing is known, whose steps run in the current interpreter all the
            same, and for each that lacks something.
    """

    pythons: Mapping[str, Path]
    notes: tuple[str, ...]
    environments: Mapping[str, StepEnvironment] = field(default_factory=dict)


def choose_interpreters(
    steps: Mapping[str, PlannedStep],
    home: Path,
    chosen: Mapping[str, Path] | None = None,
    locate: Callable[[str], Path | None] = lambda _: None,
) -> ChosenInterpreters:
    """Choose the interpreter of each step; nothing is asked of those that the user has ``chosen``, by step.

    Environments are built in ``home``, the folder ``.allranks``; ``locate`` gives the YAML of one in a workspace.

    Raises:
        CannotRunHereError: with all that has to be built or installed first: environments of ours that are not built
            and ask for packages that are not installed here, or for another torch than a built one has; mpirun.
    """
    pythons = dict(chosen or {})
    ours = _group(steps, pythons)
    others = choose_environments({n: step for n, step in steps.items() if n not in pythons}, home, locate)
    pythons |= {name: environment.python for name, environment in others.environments.items()}
    built = {folder: python for folder in ours if (python := environments.built_interpreter(home, folder)) is not None}
    for folder, python in built.items():
        pythons |= dict.fromkeys(ours[folder], python)
    here = [folder for folder in ours if folder not in built]
    lacking = {folder: what for folder in here if (what := _lacking_here(folder, _fed_by(ours[folder], steps), built))}
    served = {name: step for name, step in steps.items() if not any(name in ours[folder] for folder in lacking)}
    _refuse({folder: (ours[folder], what) for folder, what in lacking.items()}, _without_program(served, pythons))
    return ChosenInterpreters(pythons, others.notes, others.environments)


def _group(steps: Mapping[str, PlannedStep], chosen: Mapping[str, Path]) -> dict[str, list[str]]:
    """The steps of each environment of ours, without those whose Python is chosen."""
    ours: dict[str, list[str]] = {}
    for name, step in steps.items():
        folder = catalogue.environment_of(environment_label(step.component.environment))
        if name not in chosen and folder is not None:
            ours.setdefault(folder, []).append(name)
    return ours


def _fed_by(names: list[str], steps: Mapping[str, PlannedStep]) -> set[str]:
    """The environments of ours whose steps write what these steps read."""
    sources = {source for name in names for source in steps[name].after}
    labels = (environment_label(steps[source].component.environment) for source in sources if source in steps)
    found = map(catalogue.environment_of, labels)
    return {folder for folder in found if folder is not None}


def _refuse(lacking: Mapping[str, tuple[list[str], str]], without_program: Mapping[str | None, list[str]]) -> None:
    """Say at once what the steps lack and how to get it; do nothing if they lack nothing."""
    messages = [f"{', '.join(names)}: the environment {folder!r} {what}." for folder, (names, what) in lacking.items()]
    hints = [f"Build what is lacking, once: allranks env build {' '.join(lacking)}"] if lacking else []
    for distribution, names in without_program.items():
        launcher = LAUNCHERS[distribution]
        needs = f"the distribution {distribution} needs {launcher.program}, which is not on this machine."
        messages.append(f"{', '.join(names)}: {needs}")
        hints.append(launcher.remedy)
    if messages:
        raise CannotRunHereError("\n".join(messages), "\n".join(hints))


def _without_program(steps: Mapping[str, PlannedStep], pythons: Mapping[str, Path]) -> dict[str | None, list[str]]:
    """The steps whose launcher finds no program, neither beside their interpreter nor on PATH; by distribution."""
    lacking: dict[str | None, list[str]] = {}
    for name, step in steps.items():
        program = LAUNCHERS[step.distribution].program
        folder = pythons.get(name, Path(sys.executable)).parent
        if program and shutil.which(program, path=f"{folder}:{os.environ.get('PATH', os.defpath)}") is None:
            lacking.setdefault(step.distribution, []).append(name)
    return lacking


def _lacking_here(folder: str, fed_by: set[str], built: Mapping[str, Path]) -> str:
    """Why the current interpreter cannot stand for an environment; empty if it can.

    What is optional in it is not, where it reads what another environment wrote with just that: a model of Keras.
    """
    source = environments.environment_source(folder)
    lacking = unmet_requirements(source / "requirements.txt")
    if (source / _OPTIONAL).is_file():
        lists = (environments.environment_source(other) / "requirements.txt" for other in fed_by - {folder})
        wrote = {one.name for file in lists for one in read_requirements(file).values()}
        lacking += unmet_requirements(source / _OPTIONAL, among=wrote)
    if lacking:
        return f"asks for {', '.join(lacking)}"
    return "; ".join(filter(None, (_mixed(package, folder, built) for package in _ONE_VERSION)))


def _mixed(package: str, folder: str, built: Mapping[str, Path]) -> str:
    """How the current interpreter's version of a package differs from that of an environment that is built.

    The part of a version that names the build (``+cpu``) counts for nothing: both builds compute the same.
    """
    here = _version(package, None).partition("+")[0]
    if not here or not _has_pin(package, folder):
        return ""
    for other in (name for name in built if _has_pin(package, name)):
        there = _version(package, package_folder(built[other])).partition("+")[0]
        if there not in {here, ""}:
            return f"has to be built too: {package} is {here} in this Python and {there} in the environment {other!r}"
    return ""


def _has_pin(package: str, folder: str) -> bool:
    lock = (environments.environment_source(folder) / environments.LOCK_FILE).read_text(encoding="utf-8")
    return f"\n{package}==" in f"\n{lock}"


def unmet_requirements(
    requirements: Path, packages: Path | None = None, among: Collection[str] | None = None
) -> list[str]:
    """The requirements of a file that an interpreter does not satisfy, each with what is installed.

    The interpreter's packages are in the folder ``packages``, None being the current one's. Of the file's requirements
    only those ``among`` these matter; all if it is None.
    """
    lacking = []
    for text, requirement in read_requirements(requirements).items():
        if among is not None and requirement.name not in among:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        version = _version(requirement.name, packages) or _version(EQUIVALENT_PACKAGES.get(requirement.name), packages)
        if not version:
            lacking.append(f"{text} (not installed)")
        elif not requirement.specifier.contains(version, prereleases=True):
            lacking.append(f"{text} ({version} is installed)")
    return lacking


def read_requirements(file: Path) -> dict[str, Requirement]:
    """The requirements in a file, by their text there; comments and options of pip's are left out."""
    from packaging.requirements import Requirement

    lines = (line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines())
    return {line: Requirement(line) for line in lines if line and not line.startswith("-")}


def _version(package: str | None, packages: Path | None) -> str:
    """The version of a package; empty if it is not there."""
    if package is None:
        return ""
    from importlib import metadata

    path = sys.path if packages is None else [str(packages)]
    return next((found.version for found in metadata.distributions(name=package, path=path)), "")
