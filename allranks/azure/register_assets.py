"""What the library has to register: its environments, components and pipelines, with marks of what is in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from allranks import catalogue, library
from allranks.errors import Problem, SpecError, UnknownNameError
from allranks.local import snapshot
from allranks.request import is_script
from allranks.spec import Component, check_document, read_component, read_spec
from allranks.spec.document import read_yaml
from allranks.spec.model import Source
from allranks.spec.suggest import nearest_name

_Kind: TypeAlias = Literal["environment", "component", "pipeline"]
"""In the order in which they are registered; a pipeline becomes a pipeline component."""

_PREFIX = "allranks-"
"""What the environments' names begin with in a workspace; a bare ``pytorch`` would meet those of others."""

_WORDS = ("display_name", "description", "tags")
_INTERFACE = ("inputs", "outputs")
_NOT_COMPARED = ("$schema", "name", "version", "code", "additional_includes", "type")
_NOT_OF_A_COMPONENT = ("settings", "experiment_name")


@dataclass(frozen=True, slots=True)
class LibraryAsset:
    """One thing that is registered, under the library's version.

    Attributes:
        name: its name in a workspace or registry: ``allranks-pytorch``, ``train_ddp``, ``image_classification``.
        path: the YAML file.
        needs: (kind, name) of what has to be there first.
        marks: part (``code``, ``interface``, ...) to the sha256 of its content; without ids, so that they are the same
            in every workspace and registry, and without anything that the SDK writes, so that its releases do not
            change them.
        document: what the YAML says; for a pipeline the document of the pipeline component.
        own_version: of a user's own component and its environment; those of the library all carry the library's.
        dropped: names of the settings of a pipeline; a pipeline component has none (the SDK leaves them out as well).
    """

    kind: _Kind
    name: str
    path: Path
    needs: tuple[tuple[_Kind, str], ...]
    marks: Mapping[str, str]
    document: Mapping[str, Any]
    dropped: tuple[str, ...] = ()
    own_version: str = ""

    @property
    def version(self) -> str:
        """Its version: the library's, which all its assets carry, or the user's own."""
        return self.own_version or library.VERSION

    @property
    def family(self) -> str:
        """What the service calls such assets: ``environments``, or ``components`` for pipelines too."""
        return "environments" if self.kind == "environment" else "components"


def find_assets(names: Sequence[str] = ()) -> tuple[LibraryAsset, ...]:
    """The assets to register, with all that they need, in the order in which they have to be published.

    Without names that is everything; an environment is ``allranks-pytorch``, or ``pytorch`` where no component is
    called so. A path is a component of the user's own: its YAML, or the folder with its component.yaml.

    Raises:
        UnknownNameError: the library has no such name.
        SpecError: a document is not valid or carries another version; with the problems of all documents.
    """
    found: dict[tuple[_Kind, str], LibraryAsset] = {}
    problems: list[Problem] = []
    paths = [name for name in names if is_own_path(name)]
    own = [asset for path in paths for asset in own_assets(Path(path))]
    wanted = [_named(name) for name in names if name not in paths] or ([] if own else list(_everything()))
    wanted += [needed for asset in own for needed in asset.needs if needed in set(_everything())]
    while wanted:
        key = wanted.pop()
        if key in found:
            continue
        try:
            found[key] = _READERS[key[0]](key[1], problems)
        except SpecError as error:
            problems += error.problems
        else:
            wanted += found[key].needs
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return (*(found[key] for key in _everything() if key in found), *own)


def is_own_path(name: str) -> bool:
    """Whether what is to be registered is a user's own: a YAML file, or a folder that is no name of the library."""
    return name.endswith((".yml", ".yaml")) or (Path(name).is_dir() and catalogue.resolve(name) is None)


def own_assets(path: Path) -> list[LibraryAsset]:
    """A user's own component, after the environment that stands in its YAML, which gets a name and the same version.

    Azure ML would make that an anonymous one, of which a registry takes no second version [SDK issue #37464].

    Raises:
        UnknownNameError: there is no such file.
        SpecError: the component is not valid, or has no version.
    """
    files = [path / name for name in ("component.yaml", "component.yml")] if path.is_dir() else [path]
    file = next((one for one in files if one.is_file()), None)
    if file is None:
        missing = f"there is no component.yaml in {str(path)!r}" if path.is_dir() else f"there is no file {str(path)!r}"
        raise UnknownNameError(f"{missing}.", "`allranks init SCRIPT` writes one.")
    component, document = read_component(file), read_yaml(file)[0]
    version, written = str(document.get("version") or ""), document.get("environment")
    if problems := _own_problems(component, document, version, file):
        raise SpecError(problems)
    kept = {key: value for key, value in document.items() if key not in (*_NOT_COMPARED, *_WORDS, *_INTERFACE)}
    marks = {"interface": _mark_of(document, _INTERFACE), "words": _mark_of(document, _WORDS)}
    marks["code"] = snapshot.content_hash(snapshot.snapshot_files(component))
    environment = _own_environment(component.name, version, written, file) if isinstance(written, dict) else None
    ours = catalogue.environment_of(written) if isinstance(written, str) else None
    needs: tuple[tuple[_Kind, str], ...] = (("environment", f"{_PREFIX}{ours}"),) if ours else ()
    if environment is not None:
        needs, kept = (("environment", environment.name),), {**kept, "environment": dict(environment.marks)}
    marks["command"] = _mark(kept)
    asset = LibraryAsset("component", component.name, file, needs, MappingProxyType(marks), document, (), version)
    return [asset] if environment is None else [environment, asset]


def _own_problems(component: Component, document: Mapping[str, Any], version: str, file: Path) -> list[Problem]:
    problems = _errors(check_document(component))
    if not version:
        problems.append(Problem("has no version.", "version", file, hint='Write version: "1".'))
    if document.get("type", "command") != "command" or "jobs" in document:
        problems.append(Problem("only a command component can be registered by its path.", "type", file))
    return problems


def _own_environment(name: str, version: str, written: Mapping[str, Any], file: Path) -> LibraryAsset:
    """The environment that stands in a component, its conda file's content in place of its path."""
    document = {key: value for key, value in written.items() if key not in ("name", "version")}
    conda = document.get("conda_file")
    if isinstance(conda, str):
        document["conda_file"] = read_yaml(file.parent / conda)[0]
    marks = {"definition": _mark(document)}
    build = document.get("build")
    if isinstance(build, dict):
        folder = (file.parent / str(build.get("path", "."))).resolve()
        document["build"] = {**build, "path": str(folder)}
        context = Component(name=name, source=Source(file, file.parent), code=folder)
        marks["files"] = snapshot.content_hash(snapshot.snapshot_files(context))
    named = {"name": f"{name}-environment", "version": version, **document}
    return LibraryAsset("environment", named["name"], file, (), MappingProxyType(marks), named, (), version)


def _everything() -> Iterator[tuple[_Kind, str]]:
    yield from (("environment", _PREFIX + name) for name in catalogue.ENVIRONMENTS)
    yield from (("component", name) for name in catalogue.COMPONENTS)
    yield from (("pipeline", name) for name in catalogue.PIPELINES)


def _named(name: str) -> tuple[_Kind, str]:
    kinds = {known: kind for kind, known in _everything()}
    for known in (name, _PREFIX + name):
        if known in kinds:
            return kinds[known], known
    if is_script(name):
        raise UnknownNameError(f"{name!r} is a script.", f"`allranks init {name}` makes a component of it.")
    close = nearest_name(name, kinds)
    guess = f" Did you mean {close!r}?" if close else ""
    raise UnknownNameError(f"the library has nothing called {name!r}.{guess}", "`allranks list` names all of it.")


# Each reader adds what is wrong to ``problems`` and goes on, so that all of it comes at once.


def _environment(name: str, problems: list[Problem]) -> LibraryAsset:
    path = catalogue.environment_files()[name.removeprefix(_PREFIX)]
    document = _document(path)
    problems += _version_problems(document, path)
    definition = {key: value for key, value in document.items() if key not in (*_NOT_COMPARED, *_WORDS)}
    folder = path.parent / document.get("build", {}).get("path", ".")
    context = Component(name=path.parent.name, source=Source(path, path.parent), code=folder)
    files = snapshot.content_hash(snapshot.snapshot_files(context))
    marks = {"files": files, "definition": _mark(definition), "words": _mark_of(document, _WORDS)}
    return LibraryAsset("environment", name, path, (), MappingProxyType(marks), document)


def _component(name: str, problems: list[Problem]) -> LibraryAsset:
    path = catalogue.component_files()[name]
    component = read_component(path)
    document = _document(path)
    reference = str(document.get("environment", ""))
    environment = catalogue.environment_of(reference)
    problems += [*_errors(check_document(component)), *_version_problems(document, path)]
    if environment is None:
        message = f"{reference!r} is no environment of this library and version: it could not be registered along."
        problems.append(Problem(message, "environment", path, hint="`allranks env list` names those that are."))
    kept = {key: value for key, value in document.items() if key not in (*_NOT_COMPARED, *_WORDS, *_INTERFACE)}
    marks = {
        "code": snapshot.content_hash(snapshot.snapshot_files(component)),
        "interface": _mark_of(document, _INTERFACE),
        "command": _mark(kept | {"environment": environment}),
        "words": _mark_of(document, _WORDS),
    }
    needs: tuple[tuple[_Kind, str], ...] = (("environment", f"{_PREFIX}{environment}"),) if environment else ()
    return LibraryAsset("component", name, path, needs, MappingProxyType(marks), document)


def _pipeline(name: str, problems: list[Problem]) -> LibraryAsset:
    """Read from its Python source, for only there the ranges and words of a pipeline's inputs stand."""
    from allranks.azure import reader

    path = catalogue.pipeline_files()[name]
    document = reader.read_function(path.with_suffix(".py"), name, {})
    document["inputs"] = {port: _declared(said) for port, said in document.get("inputs", {}).items()}
    kept = {key: value for key, value in document.items() if key not in _NOT_OF_A_COMPONENT}
    steps = {step: _step(inner, f"jobs.{step}", path, problems) for step, inner in document["jobs"].items()}
    try:
        problems += _errors(check_document(read_spec(path, resolve=catalogue.resolve)))
    except SpecError as error:
        problems += error.problems
    marks = {"interface": _mark_of(kept, _INTERFACE), "steps": _mark(steps), "words": _mark_of(kept, _WORDS)}
    children = dict.fromkeys(filter(None, (step[component_key(step)] for step in steps.values())))
    needs: tuple[tuple[_Kind, str], ...] = tuple(("component", child) for child in children)
    component = kept | {"name": name, "version": library.VERSION, "jobs": steps}
    dropped = tuple(document.get("settings", {}))
    return LibraryAsset("pipeline", name, path, needs, MappingProxyType(marks), component, dropped)


def _declared(said: Mapping[str, Any]) -> dict[str, Any]:
    """An input of a job as a component has it: its value is the default."""
    kept = {key: value for key, value in said.items() if key != "value"}
    return kept | {"default": said["value"]} if "value" in said else kept


def component_key(step: Mapping[str, Any]) -> str:
    """Where a step says what it runs: ``trial`` for a sweep."""
    return "trial" if "trial" in step else "component"


def _step(step: Mapping[str, Any], where: str, path: Path, problems: list[Problem]) -> dict[str, Any]:
    """A step with its component's name.

    Wrong is what makes sense in one workspace only, and a component that has no name of its own: it would become an
    anonymous one.
    """
    key = component_key(step)
    written = step.get(key)
    component = Path(written).parent.name if isinstance(written, str) else None
    if component not in catalogue.COMPONENTS:
        component = None
        message = f"a step of type {step.get('type')!r} whose component is not in the library by itself cannot be sent."
        hint = "Give it a component of the library, unchanged; its resources can be set on the step."
        problems.append(Problem(message, where, path, hint=hint))
    compute = str(step.get("compute", "${{"))
    if not compute.startswith("${{") and compute != "serverless":
        message = f"the compute {compute!r} belongs to one workspace, and the component to many."
        problems.append(Problem(message, f"{where}.compute", path, hint="Leave it out, or bind it to an input."))
    for port, value in step.get("inputs", {}).items():
        if isinstance(value, dict) and not str(value.get("path", "${{")).startswith(("${{", "azureml:", "https:")):
            message = f"{value['path']} lies on this machine, and is not sent with a component."
            hint = "Bind it to an input of the pipeline."
            problems.append(Problem(message, f"{where}.inputs.{port}", path, hint=hint))
    return {**step, key: component}


def _document(path: Path) -> dict[str, Any]:
    return dict(catalogue.load_yaml(path.read_text(encoding="utf-8")))


def _version_problems(document: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    version = document.get("version")
    if version != library.VERSION:
        message = f"is {version!r}, and that of the library is {library.VERSION!r}: all assets carry one version."
        yield Problem(message, "version", path, hint="`allranks version --raise VERSION` sets it everywhere.")


def _errors(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error"]


def _mark_of(document: Mapping[str, Any], keys: Iterable[str]) -> str:
    return _mark({key: document.get(key) for key in keys})


def _mark(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


_READERS = {"environment": _environment, "component": _component, "pipeline": _pipeline}
