"""What a user asked for: one frozen object for the command line, for Python and for ``--resume``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from allranks.errors import UsageError

ANY_CLIENT = "any"  # of the container clients, the first that answers
CLIENTS = ("docker", "podman")
NOTEBOOK = ".ipynb"
SCRIPT_SUFFIXES = (".py", NOTEBOOK)
_PLACES = ("python", "environment")
_MAPPINGS = ("values", "scale", *_PLACES)


def is_script(target: str) -> bool:
    """Whether a target is written as a script's or a notebook's path."""
    return target.endswith(SCRIPT_SUFFIXES) and ".py:" not in target


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """A script as it was asked for; one of ``script``, ``module`` and ``command`` is given.

    Attributes:
        script: the path of a ``.py`` or ``.ipynb``, from the working folder.
        module: as for ``python -m``.
        command: for bash.
        arguments: what stood after ``--``.
        distribution: ``pytorch``, ``mpi``, ``tensorflow`` or ``none``; empty where it is to be recognised.
        code: the folder that becomes the snapshot; empty for the script's own, or else the working folder.
    """

    script: str = ""
    module: str = ""
    command: str = ""
    arguments: tuple[str, ...] = ()
    distribution: str = ""
    code: str = ""

    @property
    def name(self) -> str:
        """What to call it: ``train.py``, ``-m pkg.train``, or the command itself."""
        return self.script or (f"-m {self.module}" if self.module else self.command)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run as it was asked for.

    Attributes:
        target: as for ``allranks run``; of a pipeline that was built in Python its name, which only people read.
        folder: the working folder in which it was asked for; relative targets start there.
        built: the pipeline was built in Python: nothing but the run's folder says what it is.
        values: inputs as text; a path of a data input is absolute once the pipeline has been read.
        scale: step to (nodes, processes per node).
        only: these steps and those that they need; all if empty.
        map: what stands for data or a component in the cloud, as REFERENCE=PATH, the paths absolute.
        python: step to the interpreter that the user chose; ``*`` is every other step.
        environment: likewise, step to the environment: a name of the library, one of Azure's, or the path of a YAML.
        containers: each node is a container: ``docker``, ``podman``, or ``any`` of the two; empty for none.
        retries: further attempts for a step that fails, at least 0; None for those that ``restarts.py`` grants.
        cache: False runs every step from its beginning.
        since: with ``cache`` false, the run from which on finished steps are reused all the same: the one that this
            one resumes. Empty for a run that resumes none.
        resumes: the run that this one resumes; empty for none, and where it runs every step from its beginning.
        keep_checkpoints: a step that is not as it was in that run starts from what it saved there all the same.
        script: of a run of a script, which has no other target.
    """

    target: str
    folder: str
    built: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    scale: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    map: tuple[str, ...] = ()
    python: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    containers: str = ""
    retries: int | None = None
    cache: bool = True
    since: str = ""
    resumes: str = ""
    keep_checkpoints: bool = False
    script: ScriptRequest | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.retries is not None and self.retries < 0:
            raise UsageError(f"retries={self.retries} is less than 0.")
        if self.keep_checkpoints and not self.since:
            message = "--keep-checkpoints needs the run that wrote them, and its cache."
            raise UsageError(message, "Write --resume RUN --keep-checkpoints, without --no-cache.")
        if self.script is not None and self.values:
            words = [word for name, value in self.values.items() for word in (f"--{name}", value)]
            message = f"{', '.join(self.values)}: a script has no inputs, it takes arguments."
            raise UsageError(message, f"Write them as for python: -- {shlex.join(words)}, or arguments={words!r}.")

    @property
    def located(self) -> str:
        """The target, as it is found from the present working folder."""
        is_file = ".py:" in self.target or self.target.endswith((".py", ".yaml", ".yml"))
        if self.built or self.script or not is_file or Path(self.folder) == Path.cwd():
            return self.target
        return str(Path(self.folder) / self.target)

    def to_document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "scale": {step: list(counts) for step, counts in self.scale.items()}}

    def resumed(self, run_id: str, given: Mapping[str, Any]) -> RunRequest:
        """The request of a run that resumes the run of this request, which has this id.

        What was given again, by attribute: values, scale, map, python, environment and a script's arguments add to what
        was asked for, anything else replaces it; None, () and an empty script change nothing. For one step a new
        interpreter replaces an earlier environment, and an environment an interpreter.

        Raises:
            UsageError: a script was given inputs, or another target what only a script takes.
        """
        changes = {name: value for name, value in given.items() if value not in (None, (), ScriptRequest())}
        asked = changes.pop("script", ScriptRequest())
        if self.script is not None:
            changes["script"] = replace(
                self.script,
                arguments=(*self.script.arguments, *asked.arguments),
                distribution=asked.distribution or self.script.distribution,
                code=str(Path(asked.code).absolute()) if asked.code else self.script.code,
            )
        elif names := [name for name in ("arguments", "distribution", "code") if getattr(asked, name)]:
            message = f"{', '.join(names)}: only a script takes this, and run {run_id} was one of {self.target!r}."
            raise UsageError(message, "An input is given as NAME=VALUE.")
        again = {name: changes.get(name, {}) for name in _MAPPINGS}
        for name, new in again.items():
            replaced = {**again["python"], **again["environment"]} if name in _PLACES else new
            kept = {} if "*" in replaced or (self.script and "" in replaced) else getattr(self, name)
            changes[name] = {**{key: value for key, value in kept.items() if key not in replaced}, **new}
        changes["map"] = (*self.map, *changes.get("map", ()))
        since = "" if changes.get("cache") is False else self.since or run_id
        return replace(self, **changes, since=since, resumes=run_id if since else "")

    def words(self) -> list[str]:
        """What ``allranks run`` would be given for this: an option together with its value, as for a shell."""
        script = self.script or ScriptRequest()
        options = {
            "": [f"{name}={value}" for name, value in self.values.items()],
            "--scale ": [f"{step}={nodes}x{processes}" for step, (nodes, processes) in self.scale.items()],
            "--steps ": [",".join(self.only)],
            "--map ": self.map,
            "--python ": [f"{step}={path}" for step, path in self.python.items()],
            "--environment ": [f"{step}={one}" for step, one in self.environment.items()],
            "--containers ": [self.containers],
            "--retries ": ["" if self.retries is None else str(self.retries)],
            "--distribution ": [script.distribution],
            "--code ": [script.code],
        }
        given = [f"{option}{shlex.quote(text)}" for option, texts in options.items() for text in texts if text]
        flags = [] if self.cache else ["--no-cache"]
        target = [f"--command {shlex.quote(script.command)}" if script.command else self.target]
        return target + given + flags + ([f"-- {shlex.join(script.arguments)}"] if script.arguments else [])


def read_request(document: Mapping[str, Any]) -> RunRequest:
    """The request of what ``to_document`` made; what is not there has its default; raises as ``check_fields``."""
    known = {name: document[name] for name in RunRequest.__dataclass_fields__ if name in document}
    scale = {step: (nodes, processes) for step, (nodes, processes) in known.get("scale", {}).items()}
    tuples = {name: tuple(known.get(name, ())) for name in ("only", "map")}
    asked = known.get("script")
    script = ScriptRequest(**{**asked, "arguments": tuple(asked["arguments"])}) if asked else None
    from allranks.spec.keep import check_fields  # yaml is slow to import

    request = RunRequest(**{**known, **tuples, "scale": scale, "script": script})
    check_fields(request)
    if script is not None:
        check_fields(script)
    return request
