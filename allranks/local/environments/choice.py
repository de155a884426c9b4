"""Which environment each step of a plan runs in, as far as it can be made here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from allranks import catalogue
from allranks.errors import UnknownNameError
from allranks.local.environments.known import KNOWN_NAMES
from allranks.local.environments.recipe import EnvironmentRecipe, known_recipe, read_recipe, recipe_of
from allranks.local.environments.step_environment import StepEnvironment, step_environment
from allranks.local.plan import PlannedStep
from allranks.spec.needs import Environment


@dataclass(frozen=True, slots=True)
class EnvironmentChoice:
    """The environment of each step that gets one of its own, and a note for each that does not get what it names."""

    environments: Mapping[str, StepEnvironment]
    notes: tuple[str, ...]


def environment_label(environment: Environment) -> str:
    """What a message calls an environment; empty if none is named."""
    return environment.reference or str(environment.file or "") or environment.inline or ""


def choose_environments(
    steps: Mapping[str, PlannedStep], home: Path, locate: Callable[[str], Path | None] = lambda _: None
) -> EnvironmentChoice:
    """Resolve what each step names, unless that is one of ours or nothing; nothing is built yet.

    Args:
        steps: by name, in the order in which they run.
        home: the folder ``.allranks``.
        locate: the environment YAML that stands here for a reference to a workspace's; None if there is none.

    Raises:
        SpecError: an environment's file is not there, or is none.
    """
    found: dict[str, StepEnvironment] = {}
    unknown: dict[str, list[str]] = {}
    here: dict[str, list[str]] = {}
    for name, step in steps.items():
        label = environment_label(step.component.environment)
        if not label or catalogue.environment_of(label) is not None:
            continue
        recipe = find_recipe(step.component.environment, locate)
        if recipe is not None and is_this_python(recipe):
            here.setdefault(recipe.name, []).append(name)
        elif recipe is None:
            unknown.setdefault(label, []).append(name)
        else:
            found[name] = step_environment(home, recipe)
    notes = [_unknown_note(label, names) for label, names in unknown.items()]
    notes += [f"{', '.join(names)}: this Python has all that environment {one} pins." for one, names in here.items()]
    groups = {one.folder: one for one in found.values()}
    for folder, one in groups.items():
        notes += _notes(one, [name for name, other in found.items() if other.folder == folder])
    return EnvironmentChoice(found, tuple(notes))


def is_this_python(recipe: EnvironmentRecipe) -> bool:
    """Whether building an environment would give what the current interpreter has: every package is pinned, to that.

    Whatever else is installed here is there besides.
    """
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    lines = [line for line in (*recipe.conda, *recipe.pip) if not line.startswith(("--extra-index-url", "--index-url"))]
    if not lines or recipe.unmet or recipe.variables or not f"{recipe.python}.".startswith(f"{here}."):
        return False
    return all(map(_is_installed_pin, lines))


def _is_installed_pin(line: str) -> bool:
    from importlib import metadata

    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(line.partition(" #")[0].strip())
    except InvalidRequirement:
        return False
    pins = [one for one in requirement.specifier if one.operator == "==" and "*" not in one.version]
    if requirement.url or requirement.marker or not pins:
        return False
    found = (one.version for one in metadata.distributions(name=requirement.name))
    return requirement.specifier.contains(next(found, "0"), prereleases=True)


def find_recipe(environment: Environment, locate: Callable[[str], Path | None]) -> EnvironmentRecipe | None:
    """The recipe of what a step names; None where nothing is known of it. SpecError as ``read_recipe``."""
    if environment.document is not None and environment.folder is not None:
        return recipe_of(environment.document, environment.folder)
    if environment.file is not None:
        return read_recipe(environment.file)
    if environment.reference is None:
        return None
    file = locate(environment.reference)
    if file is None or file.suffix not in (".yml", ".yaml"):  # data may be registered under the same name
        return known_recipe(environment.reference)
    return read_recipe(file)


def chosen_environment(text: str) -> str:
    """What a user chose for a step: a name as it is, the path of an environment's YAML absolute.

    Raises:
        UnknownNameError: it is no file, no environment of ours and none of Azure's that is known.
    """
    file = Path(text).expanduser()
    if file.is_file():
        return str(file.absolute())
    if text.removeprefix("allranks-") in catalogue.ENVIRONMENTS or known_recipe(text) is not None:
        return text
    raise UnknownNameError(
        f"{text!r} is no environment: neither a YAML file nor a name that is known.",
        f"Ours: {', '.join(catalogue.ENVIRONMENTS)}. Azure's: {', '.join(KNOWN_NAMES)}.",
    )


def with_environments(steps: Mapping[str, PlannedStep], chosen: Mapping[str, str]) -> dict[str, PlannedStep]:
    """The steps, with the environments that the user chose, as ``chosen_environment`` gives them, for some of them."""
    return {name: _moved(step, chosen[name]) if name in chosen else step for name, step in steps.items()}


def _moved(step: PlannedStep, chosen: str) -> PlannedStep:
    ours = chosen.removeprefix("allranks-")
    if Path(chosen).is_absolute():
        environment = Environment(file=Path(chosen))
    elif ours in catalogue.ENVIRONMENTS:
        environment = Environment(reference=f"azureml:allranks-{ours}@latest")
    else:
        environment = Environment(reference=chosen)
    return replace(step, component=replace(step.component, environment=environment))


def _unknown_note(label: str, names: Sequence[str]) -> str:
    first = names[0]
    other = f"--environment {first}=FILE or --python {first}=PATH chooses another"
    return f"{', '.join(names)}: nothing is known of environment {label}; the current Python runs it ({other})."


def _notes(environment: StepEnvironment, names: Sequence[str]) -> list[str]:
    recipe, steps = environment.recipe, ", ".join(names)
    notes = []
    if not environment.is_built:
        what = f"Python {environment.version}, {recipe.packages} package{'' if recipe.packages == 1 else 's'}"
        notes.append(f"{steps}: its environment {recipe.name} ({what}) is built when the run starts.")
    if environment.left_out:
        notes.append(f"{steps}: its environment {recipe.name} was built without {', '.join(environment.left_out)}.")
    if environment.unmet:
        notes.append(
            f"{steps}: pip cannot give what environment {recipe.name} asks for besides: {', '.join(environment.unmet)}."
        )
    return notes
