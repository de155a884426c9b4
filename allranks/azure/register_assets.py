"""What the library has to register: its environments, components and pipelines, with marks of what is in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from allranks import catalogue, library
from allranks.azure.library_asset import (
    INTERFACE,
    NOT_COMPARED,
    PREFIX,
    WORDS,
    AssetKind,
    LibraryAsset,
    component_key,
    mark_content,
    mark_of,
    only_errors,
    step_problems,
)
from allranks.azure.register_own import VERSION_OPTION, is_own_path, own_assets
from allranks.errors import Problem, SpecError, UnknownNameError, UsageError
from allranks.local import snapshot
from allranks.request import is_script
from allranks.spec import Component, check_document, read_component, read_spec
from allranks.spec.model import Source
from allranks.spec.suggest import nearest_name

_NOT_OF_A_COMPONENT = ("settings", "experiment_name")


def find_assets(names: Sequence[str] = (), pipeline_version: str = "") -> tuple[LibraryAsset, ...]:
    """The assets to register, with all that they need, in the order in which they have to be published.

    Without names that is everything; an environment is ``allranks-pytorch``, or ``pytorch`` where no component is
    called so. A path is a component or a pipeline of the user's own: its YAML, or the folder with it;
    ``pipeline_version`` is that of such a pipeline whose YAML has none.

    Raises:
        UnknownNameError: the library has no such name.
        UsageError: a version for pipelines, and no pipeline that takes it.
        SpecError: a document is not valid or carries another version; with the problems of all documents.
    """
    found: dict[tuple[AssetKind, str], LibraryAsset] = {}
    problems: list[Problem] = []
    paths = [name for name in names if is_own_path(name)]
    own = own_assets(map(Path, paths), pipeline_version)
    if pipeline_version and not any(asset.raised_by for asset in own):
        message = (
            f"{VERSION_OPTION} {pipeline_version} is for a pipeline of yours without a version, and there is none."
        )
        raise UsageError(message, "Leave it out.")
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


def _everything() -> Iterator[tuple[AssetKind, str]]:
    yield from (("environment", PREFIX + name) for name in catalogue.ENVIRONMENTS)
    yield from (("component", name) for name in catalogue.COMPONENTS)
    yield from (("pipeline", name) for name in catalogue.PIPELINES)


def _named(name: str) -> tuple[AssetKind, str]:
    kinds = {known: kind for kind, known in _everything()}
    for known in (name, PREFIX + name):
        if known in kinds:
            return kinds[known], known
    if is_script(name):
        raise UnknownNameError(f"{name!r} is a script.", f"`allranks init {name}` makes a component of it.")
    close = nearest_name(name, kinds)
    guess = f" Did you mean {close!r}?" if close else ""
    message = f"the library has nothing called {name!r}, and there is no such file or folder.{guess}"
    raise UnknownNameError(
        message, "`allranks list` names all of the library; a component of yours is its folder or YAML."
    )


# Each reader adds what is wrong to ``problems`` and goes on, so that all of it comes at once.


def _document(path: Path) -> dict[str, Any]:
    """What one of the library's YAML files says."""
    return dict(catalogue.load_yaml(path.read_text(encoding="utf-8")))


def _environment(name: str, problems: list[Problem]) -> LibraryAsset:
    path = catalogue.environment_files()[name.removeprefix(PREFIX)]
    document = _document(path)
    problems += _version_problems(document, path)
    definition = {key: value for key, value in document.items() if key not in (*NOT_COMPARED, *WORDS)}
    folder = path.parent / document.get("build", {}).get("path", ".")
    context = Component(name=path.parent.name, source=Source(path, path.parent), code=folder)
    files = snapshot.content_hash(snapshot.snapshot_files(context))
    marks = {"files": files, "definition": mark_content(definition), "words": mark_of(document, WORDS)}
    return LibraryAsset("environment", name, path, (), MappingProxyType(marks), document)


def _component(name: str, problems: list[Problem]) -> LibraryAsset:
    path = catalogue.component_files()[name]
    component = read_component(path)
    document = _document(path)
    reference = str(document.get("environment", ""))
    environment = catalogue.environment_of(reference)
    problems += [*only_errors(check_document(component)), *_version_problems(document, path)]
    if environment is None:
        message = f"{reference!r} is no environment of this library and version: it could not be registered along."
        problems.append(Problem(message, "environment", path, hint="`allranks env list` names those that are."))
    kept = {key: value for key, value in document.items() if key not in (*NOT_COMPARED, *WORDS, *INTERFACE)}
    marks = {
        "code": snapshot.content_hash(snapshot.snapshot_files(component)),
        "interface": mark_of(document, INTERFACE),
        "command": mark_content(kept | {"environment": environment}),
        "words": mark_of(document, WORDS),
    }
    needs: tuple[tuple[AssetKind, str], ...] = (("environment", f"{PREFIX}{environment}"),) if environment else ()
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
        problems += only_errors(check_document(read_spec(path, resolve=catalogue.resolve)))
    except SpecError as error:
        problems += error.problems
    marks = {"interface": mark_of(kept, INTERFACE), "steps": mark_content(steps), "words": mark_of(kept, WORDS)}
    children = dict.fromkeys(filter(None, (step[component_key(step)] for step in steps.values())))
    needs: tuple[tuple[AssetKind, str], ...] = tuple(("component", child) for child in children)
    component = kept | {"name": name, "version": library.VERSION, "jobs": steps}
    dropped = tuple(document.get("settings", {}))
    return LibraryAsset("pipeline", name, path, needs, MappingProxyType(marks), component, dropped)


def _declared(said: Mapping[str, Any]) -> dict[str, Any]:
    """An input of a job as a component has it: its value is the default."""
    kept = {key: value for key, value in said.items() if key != "value"}
    return kept | {"default": said["value"]} if "value" in said else kept


def _step(step: Mapping[str, Any], where: str, path: Path, problems: list[Problem]) -> dict[str, Any]:
    """A step with its component's name.

    Wrong is a component that has no name of its own: it would become an anonymous one.
    """
    key = component_key(step)
    written = step.get(key)
    component = Path(written).parent.name if isinstance(written, str) else None
    if component not in catalogue.COMPONENTS:
        component = None
        message = f"a step of type {step.get('type')!r} whose component is not in the library by itself cannot be sent."
        hint = "Give it a component of the library, unchanged; its resources can be set on the step."
        problems.append(Problem(message, where, path, hint=hint))
    problems += step_problems(step, where, path)
    return {**step, key: component}


def _version_problems(document: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    version = document.get("version")
    if version != library.VERSION:
        message = f"is {version!r}, and that of the library is {library.VERSION!r}: all assets carry one version."
        yield Problem(message, "version", path, hint="`make bump PART=patch` sets it everywhere.")


_READERS = {"environment": _environment, "component": _component, "pipeline": _pipeline}
