"""Does the interpreter that will run a step hold what the step's environment asks for?"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from allranks import catalogue
from allranks.errors import CannotRunHereError
from allranks.spec import Component


def check_interpreter(components: Mapping[str, Component]) -> list[str]:
    """See that this interpreter can stand in for each step's environment.

    Args:
        components: the component of each step, by the step's name.

    Returns:
        One line for each environment that is not ours, whose steps run in this interpreter all the same.

    Raises:
        CannotRunHereError: an environment of ours asks for packages that are not installed here.
    """
    steps: dict[str, list[str]] = {}
    for name, component in components.items():
        steps.setdefault(_name(component), []).append(name)
    notes = []
    for reference, names in steps.items():
        folder = catalogue.environment_of(reference)
        if folder is None:
            if reference:
                notes.append(
                    f"{', '.join(names)}: environment {reference} is not emulated; the current Python runs it."
                )
            continue
        lacking = unmet(catalogue.environments()[folder].parent / "requirements.txt")
        if lacking:
            raise CannotRunHereError(
                f"{', '.join(names)}: the environment {folder!r} asks for {', '.join(lacking)}.",
                'Install what the library\'s own pipelines need: pip install "allranks[local]".',
            )
    return notes


def _name(component: Component) -> str:
    environment = component.environment
    return environment.reference or str(environment.file or "") or environment.inline or ""


def unmet(requirements: Path) -> list[str]:
    """The requirements of a file that this interpreter does not satisfy, each with what is installed."""
    from packaging.requirements import Requirement

    lacking = []
    for line in requirements.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if not text or text.startswith("-"):
            continue
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            lacking.append(f"{text} (not installed)")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            lacking.append(f"{text} ({version} is installed)")
    return lacking
