"""``allranks.run`` and ``allranks.submit``: what the verbs do, from Python, for a pipeline of the SDK or a target."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.cli.target import folder_document
from allranks.errors import UsageError
from allranks.local.folders import DEFAULT_HOME, RunsHome
from allranks.notebook.view import RunFailedError, RunView
from allranks.performing import PreparedRun, earlier_run, prepare_run
from allranks.python_arguments import ScriptArguments, asked_places, asked_scale, input_texts
from allranks.request import RunRequest

if TYPE_CHECKING:
    from allranks.azure.jobs import JobState
    from allranks.notebook.comparison import RunComparison


def run(
    pipeline: Any = None,
    /,
    *,
    resume: RunView | str | None = None,
    keep_checkpoints: bool = False,
    scale: str | Mapping[str, tuple[int, int]] | None = None,
    arguments: Sequence[Any] = (),
    distribution: str = "",
    code: str | os.PathLike[str] = "",
    steps: Sequence[str] = (),
    retries: int | None = None,
    cache: bool | None = None,
    runs_dir: str | os.PathLike[str] = DEFAULT_HOME,
    values: Mapping[str, Any] | None = None,
    map: Mapping[str, str | os.PathLike[str]] | None = None,  # noqa: A002 the name of the option
    python: Mapping[str, str | os.PathLike[str]] | None = None,
    environment: Mapping[str, str | os.PathLike[str]] | None = None,
    containers: bool | str | None = None,
    logs: bool | str | Sequence[str] | None = None,
    check: bool = False,
    **inputs: Any,
) -> RunView:
    """Run a pipeline or a script on this machine, as Azure ML would, and wait for its end.

    A terminal shows a live table, a notebook a view that is drawn again as the run goes on.

    Args:
        pipeline: what a function with the SDK's ``@pipeline`` returns, or a target as for ``allranks run``, such as
            ``pipeline.yaml`` or ``train.py``; nothing where a run is resumed.
        resume: a run to be started again as it was, or its id; finished steps are reused, what else is given is new.
        keep_checkpoints: with ``resume``, as ``--keep-checkpoints``.
        scale: step to (nodes, processes per node), over what the pipeline says; ``"2x2"`` is that of the only step.
        arguments: those of a script, such as ``["--epochs", 3]``.
        distribution: of a script: ``pytorch``, ``mpi``, ``tensorflow`` or ``none``, in place of what is recognised.
        code: of a script: the folder that each node gets a copy of; the script's own unless it is said.
        steps: these steps and those that they need; all if empty.
        retries: further attempts for a step that fails; unless it is said, those that a checkpoint makes sure of.
        cache: False runs every step from its beginning.
        runs_dir: where runs are kept.
        values: inputs whose names are no Python names, such as ``train.epochs``, or are taken here, such as ``steps``.
        map: what stands for data or a component in the cloud, such as ``{"azureml:mnist": "./mnist"}``.
        python: step to the interpreter that runs it, in place of the one that its environment calls for.
        environment: step to the environment that it runs in: a name that is known, or the path of a YAML file.
        containers: each node is a container of the step's image: ``docker``, ``podman``, or True for either.
        logs: whose prints are shown while they run: True for all, False, or as for ``--logs``; default: a script's.
        check: raise where a step fails; otherwise the run's ``status`` and ``explanation``, which is printed, say so.
        inputs: inputs of the pipeline by name; a path for data.

    Raises:
        RunFailedError: a step failed, or the run was stopped, and ``check`` is set; its ``run`` is the result.
        KeyboardInterrupt: Ctrl+C has ended it, and ``check`` is not set: the next cells or runs do not start.
        AllranksError: what was asked for is wrong; nothing has run.
    """
    given: dict[str, Any] = {"retries": retries, "cache": cache, "keep_checkpoints": keep_checkpoints}
    given |= asked_places(map, python, environment, containers)
    given |= {"values": input_texts({**(values or {}), **inputs}), "scale": asked_scale(scale), "only": tuple(steps)}
    home = resume.folder.home if isinstance(resume, RunView) else RunsHome(Path(runs_dir).resolve())
    prepared = _prepared(pipeline, ScriptArguments(arguments, distribution, code), given, home, resume)
    return _checked(_perform(prepared, home, logs), check=check)


def _prepared(
    pipeline: Any, script: ScriptArguments, given: Mapping[str, Any], home: RunsHome, resume: RunView | str | None
) -> PreparedRun:
    """What is to run: a pipeline, a script, or the run that is resumed with what was given again."""
    given = {name: value for name, value in given.items() if value is not None}
    if (pipeline is None) == (resume is None):
        which = "neither a pipeline nor a run to resume is" if resume is None else "a pipeline and a run to resume are"
        raise UsageError(f"{which} given.", "Give one: allranks.run(PIPELINE) or allranks.run(resume=RUN).")
    target = os.fspath(pipeline) if isinstance(pipeline, (str, os.PathLike)) else ""
    if resume is not None:
        earlier = earlier_run(home, resume.run_id if isinstance(resume, RunView) else resume)
        request = earlier.request.resumed(earlier.folder.id, {**given, "script": script.given()})
        return prepare_run(request, home, earlier=earlier)
    asked = script.request(target)
    if asked is not None:
        return prepare_run(RunRequest(asked.name, str(Path.cwd()), script=asked, **given), home)
    if target:
        return prepare_run(RunRequest(folder_document(target), str(Path.cwd()), **given), home)
    return prepare_run(RunRequest("", str(Path.cwd()), built=True, **given), home, pipeline)


def _perform(prepared: PreparedRun, home: RunsHome, logs: bool | str | Sequence[str] | None) -> RunView:  # noqa: FBT001
    """Run it and show it, where there is a notebook in that, with the logs that were asked for above."""
    from allranks.cli.live import perform_shown
    from allranks.cli.log_choice import ALL_LOGS, NO_LOGS, parse_logs
    from allranks.cli.script_run import perform_script
    from allranks.cli.shown_run import RunDisplay
    from allranks.notebook.observer import NotebookObserver, in_notebook

    is_script = prepared.request.script is not None
    if logs is None or isinstance(logs, bool):
        logs = ALL_LOGS if logs or (logs is None and is_script) else NO_LOGS
    chosen = parse_logs([logs] if isinstance(logs, str) else logs, prepared.plan)
    if is_script:  # whose observer prints the logs
        beside = NotebookObserver() if in_notebook() else None
        return RunView.of_result(perform_script(prepared, home, RunDisplay(chosen, beside=beside)))
    display = RunDisplay(chosen, observer=NotebookObserver(chosen) if in_notebook() else None)
    return RunView.of_result(perform_shown(prepared, home, display=display))


def _checked(result: RunView, *, check: bool) -> RunView:
    if check and result.exit_code:
        raise RunFailedError(result)
    if result.signal == signal.SIGINT:
        raise KeyboardInterrupt(f"run {result.run_id} was cancelled")
    return result


def runs(runs_dir: str | os.PathLike[str] = DEFAULT_HOME) -> list[RunView]:
    """The runs of a folder, oldest first; those of the command line too, and any that is running now.

    Args:
        runs_dir: where runs are kept.
    """
    return [RunView.of_folder(folder) for folder in RunsHome(Path(runs_dir).resolve()).all_runs()]


def load_run(run_id: str, runs_dir: str | os.PathLike[str] = DEFAULT_HOME) -> RunView:
    """One run of a folder, as it ended or as it is now.

    Args:
        run_id: its id, a unique beginning of it, or ``latest``.
        runs_dir: where runs are kept.

    Raises:
        UnknownNameError: no run, or more than one, answers to it.
    """
    return RunView.of_folder(RunsHome(Path(runs_dir).resolve()).find(run_id))


def compare(*runs: RunView | str, runs_dir: str | os.PathLike[str] = DEFAULT_HOME) -> RunComparison:
    """What differs between two or more runs: inputs, code, data, environment, metrics and curves.

    Args:
        runs: what ``run`` returned, or ids as for ``load_run``; the others are held to the first.
        runs_dir: where those that are named by their ids are kept.

    Raises:
        UsageError: fewer than two runs, or one of them twice.
        UnknownNameError: one is no run.
    """
    from allranks.notebook.comparison import compare_views

    return compare_views([run if isinstance(run, RunView) else load_run(run, runs_dir) for run in runs])


def submit(
    pipeline: Any,
    /,
    *,
    scale: Mapping[str, tuple[int, int]] | None = None,
    compute: str | None = None,
    instance_type: str | Mapping[str, str] | None = None,
    identity: str | Mapping[str, str] | None = None,
    timeout: int | str | Mapping[str, int | str] | None = None,
    experiment: str | None = None,
    registered: bool = False,
    registry: str | None = None,
    subscription: str | None = None,
    resource_group: str | None = None,
    workspace: str | None = None,
    values: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> JobState:
    """Send a pipeline to a workspace of Azure ML, after the same check as for a local run; does not wait.

    Args:
        pipeline: as for ``run``. A pipeline job of the SDK can be sent once; call its function for another.
        scale: step to (nodes, processes per node), over what the pipeline says.
        compute: the cluster of all steps that name none of their own, or ``serverless``.
        instance_type: step to VM size, on serverless compute; one size for all steps that name none.
        identity: step to ``managed``, ``user`` or ``amltoken``: as whom it reaches data; one word for the whole job.
        timeout: step to seconds, or to a text such as ``2h``, after which it is ended; one for all that have no limit.
        experiment: under what the job is listed in Studio.
        registered: name the library's components by their ids in the workspace rather than sending them along.
        registry: the same, by their ids in this registry.
        subscription: of the workspace; without it the variables ``AZUREML_ARM_*`` or config.json say it.
        resource_group: likewise.
        workspace: likewise.
        values: as for ``run``.
        inputs: as for ``run``.

    Returns:
        The job's name, state and page in Studio.

    Raises:
        AllranksError: what was asked for is wrong, or Azure refuses; nothing runs.
    """
    from allranks.azure.assemble import assemble_job
    from allranks.azure.client import connect_workspace, find_workspace
    from allranks.azure.placement import checked_placement
    from allranks.azure.registered import ComponentFinder
    from allranks.azure.submit import RegisteredComponents, submit_job
    from allranks.cli.text import print_note

    known = ComponentFinder(lambda: find_workspace(subscription, resource_group, workspace))
    asked = input_texts({**(values or {}), **inputs})
    places = checked_placement(instance_type, identity, timeout)
    assembled = assemble_job(
        pipeline, asked, scale or {}, compute=compute, experiment=experiment, asked=places, resolve=known.find
    )
    place = find_workspace(subscription, resource_group, workspace)
    reference = RegisteredComponents(registry) if registered or registry else None
    client = connect_workspace(place)
    return submit_job(client, place, assembled, reference, print_note)
