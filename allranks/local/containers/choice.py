"""Which steps of a plan run in containers, of which image, and what is said where one cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from allranks import catalogue
from allranks.errors import CannotRunHereError
from allranks.local import machine
from allranks.local.containers.client import ContainerClient
from allranks.local.containers.host import ContainerHost
from allranks.local.containers.images import ContainerImage, curated_image, image_of_document, image_of_file
from allranks.local.environments.choice import environment_label
from allranks.local.plan import PlannedStep
from allranks.spec.needs import Environment

_IN_CONTAINERS = frozenset(["command", "sweep"])
_WITHOUT = frozenset(["if_else"])
"""Kinds whose work is the tool's own, and not that of a step's environment."""
_REFUSED = {
    "mpi": "mpirun in one container cannot start ranks in another: that needs an ssh server in each image",
    "parallel": "its workers are started, and fed, by the coordinator outside",
}
_PASSED = frozenset(
    [
        *("--shm-size", "--ulimit", "--memory", "-m", "--memory-swap", "--memory-reservation", "--cpus"),
        *("--cpu-shares", "--cpuset-cpus", "--pids-limit", "--tmpfs", "--oom-score-adj"),
    ]
)
"""Options in ``docker_args`` that give a container no rights, and no way to what is outside."""


def place_in_containers(
    steps: Mapping[str, PlannedStep], client: ContainerClient, home: Path, locate: Callable[[str], Path | None]
) -> tuple[dict[str, PlannedStep], list[ContainerImage], list[str]]:
    """Give each step that runs a command of the user's its containers.

    Args:
        steps: by name, in the order in which they run.
        client: what starts the containers.
        home: the folder ``.allranks``.
        locate: the environment YAML that stands here for a reference to a workspace's; None if there is none.

    Returns:
        The steps, the images that they need, each once, and notes for people.

    Raises:
        SpecError: an environment's file is not there, or is none.
        CannotRunHereError: with all steps that cannot run in a container.
    """
    placed, refused, notes = dict(steps), [], []
    images: dict[str, ContainerImage] = {}
    for name, step in steps.items():
        if step.kind in _WITHOUT:
            continue
        image = find_image(step.component.environment, client, home, locate)
        if fault := _fault(step, image):
            refused.append(f"{name}: cannot run in a container: {fault}.")
        elif image is not None:
            images.setdefault(image.reference, image)
            passed, left_out = divided_options(step.docker_args)
            if left_out:
                notes.append(f"{name}: not passed on of its docker_args: {' '.join(left_out)}.")
            host = ContainerHost(images[image.reference], step.shm_size, passed, bool(machine.usable_gpus()))
            variables = {**image.variables, **step.environment_variables}
            placed[name] = replace(step, host=host, environment_variables=variables)
    if refused:
        raise CannotRunHereError("\n".join(refused), "Without --containers steps run in interpreters of their own.")
    return placed, list(images.values()), notes


def _fault(step: PlannedStep, image: ContainerImage | None) -> str:
    """Why a step cannot run in containers; empty if it can."""
    for what in (step.kind, step.distribution):
        if what in _REFUSED:
            return f"{'distribution' if what == step.distribution else 'kind'} {what}: {_REFUSED[what]}"
    if step.kind not in _IN_CONTAINERS:
        return f"kind {step.kind}"
    if image is None:
        label = environment_label(step.component.environment)
        return f"no image is known of its environment {label}" if label else "it names no environment, and so no image"
    return ""


def find_image(
    environment: Environment, client: ContainerClient, home: Path, locate: Callable[[str], Path | None]
) -> ContainerImage | None:
    """The image of what a step names; None where none is known. SpecError as ``image_of_file``."""
    if environment.document is not None and environment.folder is not None:
        return image_of_document(environment.document, environment.folder, client, home)
    if environment.file is not None:
        return image_of_file(environment.file, client, home)
    if environment.reference is None:
        return None
    ours = catalogue.environment_of(environment.reference)
    if ours is not None:
        return image_of_file(catalogue.environment_files()[ours], client, home)
    file = locate(environment.reference)
    if file is not None and file.suffix in (".yml", ".yaml"):
        return image_of_file(file, client, home)
    return curated_image(environment.reference, client, home)


def divided_options(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``docker_args`` as those that are passed on and those that are not, each option with its value."""
    options: list[list[str]] = []
    for word in words:
        if word.startswith("-") or not options:
            options.append([word])
        else:
            options[-1].append(word)
    kept = [option for option in options if option[0].partition("=")[0] in _PASSED and len(option) <= 2]
    left = [option for option in options if option not in kept]
    return tuple(word for option in kept for word in option), tuple(word for option in left for word in option)
