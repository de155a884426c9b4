"""A script as a pipeline of one step: what ``allranks run train.py`` runs, as a component would."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from allranks.errors import UsageError
from allranks.files import write_text
from allranks.local.fingerprint import json_digest
from allranks.local.folders import RunsHome, child
from allranks.local.snapshot import first_files
from allranks.request import NOTEBOOK, ScriptRequest
from allranks.script.launches import (
    DISTRIBUTION_CHOICES,
    NO_DISTRIBUTION,
    RecognisedLaunch,
    command_words,
    lone_trainers,
    own_launcher,
    recognise_command,
    recognise_launch,
)
from allranks.script.paths import FILE, FOLDER, WRITTEN, looks_like_path, path_role
from allranks.script.sources import ScriptSource, read_script, with_local_modules
from allranks.spec.budget import current_budget
from allranks.spec.model import Component, Data, Input, Pipeline, Source, Step
from allranks.spec.needs import Distribution, Environment

_UNBUFFERED = MappingProxyType({"PYTHONUNBUFFERED": "1"})
"""What a script prints is seen when it prints it."""


@dataclass(frozen=True, slots=True)
class ScriptTarget:
    """The pipeline of a script, and what its user should know of how it is run."""

    pipeline: Pipeline
    notes: tuple[str, ...]


def script_target(
    request: ScriptRequest, folder: Path, home: RunsHome, scale: Mapping[str, tuple[int, int]]
) -> ScriptTarget:
    """Read a script as it was asked for in a working folder.

    Raises:
        UsageError: there is no such script, Python cannot read it, or its folder is none for a snapshot.
    """
    code, main = _places(request, folder)
    try:
        _refuse_large(code, request)
    except OSError as error:  # a socket, a link that leads nowhere, a folder that only another user may read
        raise UsageError(
            f"the folder of {request.name} cannot be copied for the ranks: {error}.",
            "Give the script a folder of its own, or name that in an .amlignore there.",
        ) from error
    source = read_script(main) if main is not None else None
    launch = _recognised(request, source, code)
    _refuse_scale(launch, scale, request)
    lone = [] if source is None else _lone_trainers(source, code, scale, request.arguments)
    includes: tuple[Path, ...] = ()
    started = Path(os.path.relpath(main, code)) if main is not None and request.script else None
    left_out: tuple[str, ...] = ()
    if main is not None and source is not None and main.suffix == NOTEBOOK:
        from allranks.script.notebook import read_notebook

        notebook = read_notebook(main)
        includes, started, left_out = (
            (_written_notebook(home, main, notebook.text),),
            Path(f"{main.stem}.py"),
            notebook.left_out,
        )
    arguments, inputs, notes = _split_inputs(request, folder, code, home)
    command = _command(request, started, arguments)
    name = step_name(started.stem if started else request.module.rpartition(".")[2] or _command_name(request.command))
    pipeline = _one_step(name, command, code, includes, launch, inputs, request)
    which = f"{request.name} runs with {launch.words}"
    said = [which if request.distribution else f"{which} (--distribution NAME says otherwise)", *notes]
    said += lone
    said += [f"left out of {request.name}: {line}" for line in left_out]
    return ScriptTarget(pipeline, tuple(said))


def step_name(text: str) -> str:
    """A text as the name of a step or component: lower-case letters, digits and underscores, a letter first."""
    name = re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_")
    return name if name[:1].isalpha() else f"script_{name}".rstrip("_")


def _places(request: ScriptRequest, folder: Path) -> tuple[Path, Path | None]:
    """The folder that becomes the snapshot, and the script in it, if there is one that can be found."""
    if request.script:
        main = (folder / Path(request.script).expanduser()).absolute()
        code = (folder / request.code).resolve() if request.code else main.parent.resolve()
        main = main.parent.resolve() / main.name
        if not main.is_relative_to(code):
            raise UsageError(f"--code {request.code!r} does not hold the script {request.script!r}.")
        return code, main
    code = (folder / request.code).resolve()
    if not code.is_dir():
        raise UsageError(f"--code {request.code!r} is no folder.")
    if not request.module:
        return code, None
    parts = request.module.split(".")
    if not all(part.isidentifier() for part in parts):
        raise UsageError(f"-m {request.module!r} is no module's name.", "Write it as for python: -m pkg.train.")
    place = code.joinpath(*parts)
    for file in (place.with_name(f"{place.name}.py"), place / "__main__.py"):
        if file.is_file():
            return code, file
    if (code / parts[0]).exists() or (code / f"{parts[0]}.py").exists():
        raise UsageError(f"there is no module {request.module!r} in {code}.", "-m starts in the folder where you are.")
    return code, None  # of a package that is installed


def _recognised(request: ScriptRequest, source: ScriptSource | None, code: Path) -> RecognisedLaunch:
    if request.distribution:
        if request.distribution not in DISTRIBUTION_CHOICES:
            choices = ", ".join(DISTRIBUTION_CHOICES)
            raise UsageError(f"--distribution {request.distribution!r} is none of {choices}.")
        chosen = "" if request.distribution == NO_DISTRIBUTION else request.distribution
        return RecognisedLaunch(chosen, "as asked for", own_launcher(request.command))
    if source is not None:
        return recognise_launch(with_local_modules(source, code))
    if request.command:
        return recognise_command(*_command_sources(request.command, code))
    return RecognisedLaunch("", "its source is not in this folder")


def _lone_trainers(
    source: ScriptSource, code: Path, scale: Mapping[str, tuple[int, int]], given: Sequence[str]
) -> list[str]:
    nodes, processes = next(iter(scale.values()), (1, 1))
    return lone_trainers(with_local_modules(source, code), nodes, processes, given) if nodes * processes > 1 else []


def _command_sources(command: str, code: Path) -> tuple[str, list[ScriptSource]]:
    """The command with the text of the shell scripts that it starts, and the Python scripts that both start."""
    text = command
    for word in command_words(command):
        if word.endswith(".sh") and (code / word).is_file():
            text += "\n" + (code / word).read_text(encoding="utf-8", errors="replace")
    scripts = dict.fromkeys(word for word in re.split(r"[\s;&|()'\"]+", text) if word.endswith(".py"))
    mains = [read_script(code / word) for word in scripts if (code / word).is_file()]
    return text, [one for main in mains for one in with_local_modules(main, code)]


def _refuse_scale(launch: RecognisedLaunch, scale: Mapping[str, tuple[int, int]], request: ScriptRequest) -> None:
    """Refuse ranks of which the script would know nothing: each would do the whole work."""
    for nodes, processes in scale.values():
        if launch.own_launcher and launch.distribution and processes > 1:
            raise UsageError(
                f"--scale {nodes}x{processes}: {launch.own_launcher} in the command starts the processes of a node.",
                f"Write --scale {nodes}x1, and the processes of each node in the command.",
            )
        if not launch.distribution and (nodes, processes) != (1, 1):
            raise UsageError(
                f"--scale {nodes}x{processes}: {request.name} runs as one process: {launch.reason}.",
                "If it takes part in a launch all the same, say which: --distribution pytorch, mpi or tensorflow.",
            )


def _refuse_large(code: Path, request: ScriptRequest) -> None:
    """Refuse a folder of which nobody wants a copy, before it is listed to its end."""
    total, tops, budget = 0, dict[str, int](), current_budget()
    for number, file in enumerate(first_files(code), start=1):
        size = file.size
        total += size
        top = file.path.partition("/")[0]
        tops[top] = tops.get(top, 0) + size
        if number > budget.script_files or total > budget.script_bytes:
            largest = ", ".join(sorted(tops, key=lambda one: -tops[one])[:3])
            raise UsageError(
                f"the folder {code} of {request.name} has more than {budget.script_files:,} files or "
                f"{budget.script_bytes / 1e9:g} GB,"
                f" and every node would get a copy (so far most is in {largest}).",
                "Give the script a folder of its own, or name what it does not need in an .amlignore there. "
                + budget.how_to_raise("script_files" if number > budget.script_files else "script_bytes"),
            )


def _written_notebook(home: RunsHome, notebook: Path, text: str) -> Path:
    """The script of a notebook as a file, under the notebook's own name."""
    home.prepare()
    folder = child(home.path, "notebooks", json_digest([str(notebook), text])[:16])
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{notebook.stem}.py"
    write_text(file, text, follow_links=False)
    return file


def _split_inputs(
    request: ScriptRequest, folder: Path, code: Path, home: RunsHome
) -> tuple[list[str], dict[str, Data], list[str]]:
    """The arguments as words of a shell, the data inputs among them, and what is said about these.

    A path that is there becomes an input, so that it is read where it lies; one that the snapshot has too stays as it
    is, and so does one that is written to: Azure ML would keep neither beside the script.
    """
    shown: list[str] = []
    inputs: dict[str, Data] = {}
    notes: list[str] = []
    option = ""
    for argument in request.arguments:
        name, value, prefix = option, argument, ""
        if argument.startswith("-"):
            flag, equals, after = argument.partition("=")
            option = "" if equals else argument
            if not equals:
                shown.append(shlex.quote(argument))
                continue
            name, value, prefix = flag, after, f"{flag}="
        else:
            option = ""
        place = _input_place(name, value, folder, code, home)
        if place is None:
            shown.append(shlex.quote(argument))
            continue
        port = _free_name(name or place.stem, inputs)
        inputs[port] = Data(str(place), FILE if place.is_file() else FOLDER)
        shown.append(f"{shlex.quote(prefix) if prefix else ''}'${{{{inputs.{port}}}}}'")
        notes.append(f"{argument if prefix else ' '.join(filter(None, (name, value)))} is read where it lies: {place}")
    return shown, inputs, notes


def _input_place(option: str, value: str, folder: Path, code: Path, home: RunsHome) -> Path | None:
    """Where an argument lies that is a path to read; None for one that is no such path, or that the snapshot has."""
    if not value or len(value) > 4096 or "\0" in value or "\n" in value:
        return None
    place = (folder / Path(value).expanduser()).resolve()
    if not (place.is_file() or place.is_dir()):
        return None
    role = path_role(option, value) if option else None
    if (role is not None and role.use == WRITTEN) or (role is None and not looks_like_path(value)):
        return None
    if home.path == place or home.path.is_relative_to(place) or code.is_relative_to(place):
        return None
    is_kept = (
        folder.resolve() == code and place.is_file() and place.is_relative_to(code) and not Path(value).is_absolute()
    )
    return None if is_kept and any(file.source == place for file in first_files(code)) else place


def _free_name(text: str, taken: Mapping[str, Data]) -> str:
    name = re.sub(r"\W+", "_", text.lstrip("-"), flags=re.ASCII).strip("_") or "path"
    name = f"path_{name}" if name[0].isdigit() else name
    lower = {one.lower() for one in taken}
    return next(one for one in (name, *(f"{name}_{n}" for n in range(2, 1000))) if one.lower() not in lower)


def _command(request: ScriptRequest, started: Path | None, arguments: Sequence[str]) -> str:
    if any("${{" in argument for argument in request.arguments):
        raise UsageError("an argument of the script has '${{' in it, which Azure ML reads as a reference.")
    begin = request.command
    if request.module:
        begin = f"python -m {request.module}"
    elif started is not None:
        begin = f"python {shlex.quote(started.as_posix())}"
    return " ".join([begin, *arguments])


def _command_name(command: str) -> str:
    """The script that a command starts, or its first word."""
    words = command_words(command) or ["command"]
    return Path(next((word for word in words if word.endswith((".py", ".sh"))), words[0])).stem


def _one_step(
    name: str,
    command: str,
    code: Path,
    includes: tuple[Path, ...],
    launch: RecognisedLaunch,
    data: Mapping[str, Data],
    request: ScriptRequest,
) -> Pipeline:
    declared = {port: Input(port, one.type or FOLDER) for port, one in data.items()}
    source = Source(None, code)
    component = Component(
        name=name,
        source=source,
        display_name=request.name,
        inputs=MappingProxyType(declared),
        command=command,
        code=code,
        includes=includes,
        environment=Environment(inline="the Python of allranks"),
        environment_variables=_UNBUFFERED,
        distribution=Distribution(launch.distribution) if launch.distribution else None,
        is_deterministic=False,  # nothing is known of what it reads: each run is meant
    )
    bound = {port: f"${{{{parent.inputs.{port}}}}}" for port in data}
    return Pipeline(
        name=name,
        source=source,
        display_name=request.name,
        inputs=MappingProxyType({port: replace(declared[port], default=one) for port, one in data.items()}),
        steps=MappingProxyType({name: Step(name, component, MappingProxyType(bound))}),
    )
