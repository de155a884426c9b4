"""From a request to its run: the one way that the command line, Python and ``--resume`` take."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.azure.python_target import is_python_target, split_target
from allranks.cli import target
from allranks.cli.text import YAML_SUFFIXES
from allranks.errors import SpecError, UnknownNameError, UsageError
from allranks.local.assets import CloudStandIns, read_mapping
from allranks.local.checkout_assets import CheckoutAssets
from allranks.local.described import with_environment_files
from allranks.local.environments.choice import chosen_environment, with_environments
from allranks.local.folders import RunFolder, RunsHome
from allranks.local.heavy import heavy_snapshots
from allranks.local.options import RunOptions
from allranks.local.plan import PlannedStep, RunPlan
from allranks.local.planning import plan_pipeline
from allranks.local.record_shapes import read_json_file
from allranks.local.requirements import ChosenInterpreters, choose_interpreters
from allranks.local.settings import (
    absolute_values,
    all_steps,
    apply_scale,
    apply_values,
    change_step,
    given_names,
    named_scale,
)
from allranks.request import RunRequest, read_request
from allranks.spec import Component, Pipeline, check_document, check_machines
from allranks.spec.keep import kept_document, kept_pipeline

if TYPE_CHECKING:
    from allranks.local.containers.images import ContainerImage


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run of which everything is known: what was asked for, the paths of data inputs absolute, and what it will do.

    ``definition`` is the pipeline as it was read, for the run's folder; ``assets`` are the references that files of the
    checkout stand for, with the paths of these.
    """

    request: RunRequest
    plan: RunPlan
    definition: Mapping[str, Any]
    assets: Mapping[str, str]

    def options(self, home: RunsHome) -> RunOptions:
        """How it is run: by this interpreter."""
        return RunOptions(home, Path(sys.executable), self.request, self.definition)


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """What a run has kept of how it was started: its folder with the steps' snapshots, and the pipeline that it ran."""

    folder: RunFolder
    request: RunRequest
    definition: Mapping[str, Any]


def earlier_run(home: RunsHome, name: str) -> EarlierRun:
    """The run of that id, unique beginning of an id, or ``latest``.

    Raises UnknownNameError if there is none, and UsageError if its folder does not say how it was started.
    """
    folder = home.find(name)
    kept = read_json_file(folder.request)
    try:
        return EarlierRun(folder, read_request(kept["request"]), kept["definition"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UsageError(
            f"run {folder.id} cannot be resumed: its request.json is not there, or of another version.",
            "Start it again with `allranks run TARGET`; its finished steps are reused.",
        ) from None


def prepare_run(request: RunRequest, home: RunsHome, job: Any = None, earlier: EarlierRun | None = None) -> PreparedRun:
    """Read what is to run, and plan it; raises AllranksError for what is wrong, before anything has run.

    The SDK's pipeline ``job`` is given where it is the target, which then gets the job's name. What is not there any
    more is taken from the ``earlier`` run that is resumed.
    """
    if earlier is not None and request.keep_checkpoints and earlier.folder.alive:
        raise UsageError(
            f"run {request.resumes} still writes its checkpoints.", "Wait for its end, or stop it (Ctrl-C)."
        )
    is_built = request.built or request.script is not None
    folder = Path(request.folder) if is_built else target.target_folder(request.located)
    stands = CloudStandIns(read_mapping(request.map, folder), home, CheckoutAssets.around(folder))
    pipeline, notes = _read(request, home, stands, job, earlier)
    definition = kept_document(pipeline)
    scale = named_scale(pipeline, request.scale)
    request = replace(request, values=absolute_values(pipeline, request.values), scale=scale)
    notes = notes if earlier is None else [_resumed_words(request, earlier), *notes]
    plan = _plan(pipeline, home, stands, request)
    request = replace(request, target=request.target or plan.name)
    plan = replace(plan, notes=(*notes, *stands.taken_lines, *plan.notes))
    return PreparedRun(request, plan, definition, stands.taken)


def _resumed_words(request: RunRequest, earlier: EarlierRun) -> str:
    """What is run, and what of that differs from the run that is resumed."""
    before, now = earlier.request.words(), request.words()
    new, gone = ([word for word in one if word not in other] for one, other in ((now, before), (before, now)))
    differs = f" with {', '.join(new)}" if new else "" if gone else " as it was"
    differs += f" {'in place of' if new else 'without'} {', '.join(gone)}" if gone else ""
    return f"resumes run {earlier.folder.id}{differs}: allranks run {' '.join(now)}"


def _plan(pipeline: Pipeline, home: RunsHome, stands: CloudStandIns, request: RunRequest) -> RunPlan:
    """Apply values and scale, check, resolve, and choose each step's interpreter; every mistake is found here."""
    pipeline, problems = apply_values(pipeline, request.values)
    machines = check_machines(pipeline)  # before --scale, which is for here; and only notes: this machine is another
    pipeline = apply_scale(pipeline, request.scale)
    problems += check_document(pipeline, values={})
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise SpecError(errors)
    given = given_names(pipeline, request.values, request.scale)
    plan = plan_pipeline(pipeline, stands, containers=bool(request.containers), given=given)
    if request.only:
        plan = plan.only(request.only)
    own = request.script is not None and not (request.python or request.environment or request.containers)
    python = {"*": sys.executable} if own else request.python  # a script of the user's has this environment or none
    by_step = _by_step(python, plan, "--python").items()
    chosen = {name: Path(path) for name, path in by_step if name in python or name not in request.environment}
    steps = with_environments(plan.steps, _by_step(request.environment, plan, "--environment"))
    steps = with_environment_files(steps, stands, chosen)
    steps, images, container_notes = _contained(steps, request, home, stands)
    outside = {name: step for name, step in steps.items() if step.host.is_this_machine}
    interpreters = choose_interpreters(outside, home.path, chosen, stands.find_environment)
    steps = {name: _placed(step, interpreters) for name, step in steps.items()}
    environments = tuple({one.folder: one for one in interpreters.environments.values()}.values())
    heavy = heavy_snapshots(step.component for step in steps.values())
    warnings = (str(problem).removeprefix(f"{Path.cwd()}/") for problem in (*problems, *machines, *heavy))
    notes = (*warnings, *interpreters.notes, *container_notes, *plan.notes)
    return replace(plan, steps=steps, notes=notes, environments=environments, images=tuple(images))


def _contained(
    steps: dict[str, PlannedStep], request: RunRequest, home: RunsHome, stands: CloudStandIns
) -> tuple[dict[str, PlannedStep], list[ContainerImage], list[str]]:
    """The steps in containers, if that was asked for, with the images that they need and notes."""
    if not request.containers:
        return steps, [], []
    if chosen := [*request.python, *request.environment]:
        options = " and ".join(f"--{name}" for name in ("python", "environment") if getattr(request, name))
        named = ", ".join(dict.fromkeys(chosen))
        raise UsageError(
            f"--containers and {options} of {named}: in a container the image counts.", "Give one of them."
        )
    from allranks.local.containers.choice import place_in_containers
    from allranks.local.containers.client import find_client

    return place_in_containers(steps, find_client(request.containers), home.path, stands.find_environment)


def _by_step(given: Mapping[str, str], plan: RunPlan, option: str) -> dict[str, str]:
    """What an option says for each step; ``*`` stands for all that it does not name."""
    for name in given.keys() - plan.steps.keys() - {"*"}:
        raise UnknownNameError(f"{option}: {name!r} is no step. The steps are {', '.join(plan.steps)}.")
    every = dict.fromkeys(plan.steps, given["*"]) if "*" in given else {}
    return {**every, **{name: value for name, value in given.items() if name != "*"}}


def _placed(step: PlannedStep, interpreters: ChosenInterpreters) -> PlannedStep:
    """The step with its interpreter; variables of its environment stand behind its own."""
    environment = interpreters.environments.get(step.name)
    variables = {**(environment.recipe.variables if environment else {}), **step.environment_variables}
    return replace(step, python=interpreters.pythons.get(step.name), environment_variables=variables)


def chosen_interpreter(text: str) -> tuple[str, str]:
    """``STEP=PATH`` as the step and the absolute path of its Python; raises UsageError if there is no program."""
    step, separator, path = text.partition("=")
    if not separator or not step or not path:
        raise UsageError(f"--python {text!r} is not STEP=PATH.", "For example: --python train=/opt/torch/bin/python.")
    python = Path(path).expanduser().absolute()  # not resolved: a virtual environment's Python is a link
    if not (python.is_file() and os.access(python, os.X_OK)):
        raise UsageError(f"--python {text!r}: there is no program {str(python)!r}.")
    return step, str(python)


def chosen_step_environment(text: str) -> tuple[str, str]:
    """``STEP=NAME_OR_FILE`` as the step and the name, or the absolute path; raises UsageError if it is neither."""
    step, separator, value = text.partition("=")
    if not separator or not step or not value:
        raise UsageError(
            f"--environment {text!r} is not STEP=NAME_OR_FILE.", "For example: --environment train=env.yml."
        )
    return step, chosen_environment(value)


def absolute_mapping(option: str) -> str:
    """``REFERENCE=PATH`` with the path absolute; anything else as it is, for whoever reads it to refuse."""
    reference, _, path = option.partition("=")
    return f"{reference}={Path(path).expanduser().absolute()}" if path else option


def _read(
    request: RunRequest, home: RunsHome, stands: CloudStandIns, job: Any, earlier: EarlierRun | None
) -> tuple[Pipeline, list[str]]:
    """The pipeline, and what a user should know of where it comes from."""
    if job is not None:
        from allranks.azure.job_source import pipeline_of_job

        return pipeline_of_job(job, stands.find_component), []
    if request.script is not None and (earlier is None or _is_there(request)):
        from allranks.script.target import script_target

        found = script_target(request.script, Path(request.folder), home, request.scale)
        return found.pipeline, list(found.notes)
    if earlier is not None and request.script != earlier.request.script:
        message = f"{request.target} is not there any more: it can be resumed as it was, but not with anything else."
        raise UsageError(message, "Leave out what stands after --, --distribution and --code.")
    if earlier is None:
        return target.load_target(request.located, stands.find_component), []
    gone = [] if request.built or _is_there(request) else [f"{request.located} is not there any more"]
    if request.built or request.script or gone:
        pipeline, lost = _with_kept_code(_kept(earlier), earlier.folder, every=request.script is not None)
        taken = gone + ([f"the code of {', '.join(lost)} is not there any more"] if lost else [])
        return pipeline, [f"{what}: it is taken from run {earlier.folder.id}." for what in taken]
    pipeline = target.load_target(request.located, stands.find_component)
    same = json.loads(json.dumps(kept_document(pipeline))) == earlier.definition
    note = f"{request.target} has changed since that run, or a file that it names has; it runs as it is now."
    return pipeline, [] if same else [note]


def _is_there(request: RunRequest) -> bool:
    """Whether the target can still be read; a name of the library can."""
    if request.script is not None:
        return not request.script.script or Path(request.folder, request.script.script).expanduser().is_file()
    if is_python_target(request.target):
        return split_target(request.located)[0].is_file()
    path = Path(request.located)
    return path.is_file() or path.suffix not in YAML_SUFFIXES


def _kept(earlier: EarlierRun) -> Pipeline:
    try:
        return kept_pipeline(earlier.definition)
    except ValueError as error:
        raise UsageError(
            f"run {earlier.folder.id} cannot be resumed: what it keeps of its pipeline is {error}.",
            "Start it again; its finished steps are reused.",
        ) from None


def _with_kept_code(pipeline: Pipeline, folder: RunFolder, *, every: bool) -> tuple[Pipeline, list[str]]:
    """The pipeline, with the run's snapshot in place of code that is gone, and the steps whose code that is.

    With ``every`` all code is gone: of a script's folder that is still there the script is not.
    """
    lost = []
    for name, step in all_steps(pipeline):
        component, snapshot = step.component, folder.step(name).snapshot
        if not isinstance(component, Component) or not snapshot.is_dir():
            continue
        if every or any(not path.exists() for path in (component.code, *component.includes) if path is not None):
            lost.append(name)
            kept = replace(component, code=snapshot, includes=())
            pipeline = change_step(pipeline, name, lambda step, kept=kept: replace(step, component=kept))  # type: ignore[misc]
    return pipeline, lost
