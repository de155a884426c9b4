"""What environments a target of ``allranks env`` needs: a pipeline, a component, or an environment itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from allranks import catalogue
from allranks.azure.python_target import is_python_target
from allranks.cli import text
from allranks.cli.target import load_target, target_folder
from allranks.errors import CannotRunHereError, UnknownNameError
from allranks.local.assets import CloudStandIns, read_mapping
from allranks.local.checkout_assets import CheckoutAssets
from allranks.local.environments.choice import environment_label, find_recipe
from allranks.local.environments.known import KNOWN_NAMES
from allranks.local.environments.recipe import EnvironmentRecipe, known_recipe, read_recipe
from allranks.local.environments.step_environment import StepEnvironment, step_environment
from allranks.local.folders import RunsHome
from allranks.local.settings import all_steps
from allranks.spec import Component
from allranks.spec.document import read_yaml

_OF_OTHERS = frozenset(["jobs", "command", "type", "trial", "component"])  # keys that no environment's YAML has


def target_environments(target: str, home: Path, mapped: Sequence[str]) -> tuple[list[str], list[StepEnvironment]]:
    """The environments of ours that a target's steps need, and those of other people's, each once.

    Args:
        target: as for ``allranks run``; or an environment's YAML, or a name of Azure's that is known.
        home: the folder ``.allranks``.
        mapped: what stands for references, as REFERENCE=PATH.

    Raises:
        AllranksError: there is no such target, or it is not valid.
        CannotRunHereError: of the environment that the target itself is nothing is known.
    """
    recipe = _own_recipe(target)
    if recipe is not None:
        return [], [step_environment(home, recipe)]
    folder = target_folder(target)
    stands = CloudStandIns(read_mapping(mapped, folder), RunsHome(home), CheckoutAssets.around(folder))
    pipeline = load_target(target, stands.find_component)
    ours: dict[str, None] = {}
    others: dict[Path, StepEnvironment] = {}
    for _, step in all_steps(pipeline):
        if not isinstance(step.component, Component):
            continue
        name = catalogue.environment_of(environment_label(step.component.environment))
        found = None if name else find_recipe(step.component.environment, stands.find_environment)
        if name is not None:
            ours[name] = None
        elif found is not None:
            environment = step_environment(home, found)
            others[environment.folder] = environment
    return list(ours), list(others.values())


def _own_recipe(target: str) -> EnvironmentRecipe | None:
    """The recipe of a target that is itself an environment; None if it is something else."""
    path = Path(target)
    if is_python_target(target) or path.suffix not in text.YAML_SUFFIXES or not path.is_file():
        known = known_recipe(target)
        named = is_python_target(target) or path.suffix in text.YAML_SUFFIXES or path.exists()
        if known is None and not named and catalogue.resolve(target) is None:
            raise _unknown(target)
        return known
    document, _ = read_yaml(path)
    if _OF_OTHERS & document.keys() or not {"image", "build", "conda_file"} & document.keys():
        return None
    recipe = read_recipe(path)
    if recipe is None:
        raise CannotRunHereError(f"{target} names only an image, of which nothing is known here.")
    return recipe


def _unknown(target: str) -> UnknownNameError:
    names = [*catalogue.ENVIRONMENTS, *KNOWN_NAMES]
    return UnknownNameError(
        f"{target!r} is no environment{text.name_suggestion(target, names)}.",
        f"Environments: {', '.join(catalogue.ENVIRONMENTS)}. Azure's: {', '.join(KNOWN_NAMES)}. Or give a pipeline,"
        " a component, or an environment's YAML.",
    )
