"""What a user has to register: a component with its environment, or a pipeline after the components of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from allranks.errors import Problem, SpecError, UnknownNameError
from allranks.local import snapshot
from allranks.script.target import step_name
from allranks.spec import Component, Pipeline, check_document, read_component, read_spec
from allranks.spec.check_command import name_fault
from allranks.spec.document import read_yaml
from allranks.spec.model import LITERAL_TYPES, Source
from allranks.spec.section import is_address, local_path

VERSION_OPTION = "--pipeline-version"
"""Of `allranks register`."""

ONLY_VERSION = "1"
"""Of an environment whose name is a hash of its content: another content has another name."""

_FILES = ("component.yaml", "component.yml", "pipeline.yml", "pipeline.yaml")
"""What is looked for in a folder, in this order: what `allranks init` writes is foremost a component."""

_OF_A_COMPONENT = ("display_name", "description", "tags", "is_deterministic")
_OF_AN_INPUT = ("description", "optional", "default", "min", "max", "enum", "mode")
_OF_THE_RUN = ("settings", "compute", "identity", "experiment_name")
"""Keys of a pipeline that a pipeline component does not have: they are those of the pipeline that it is put into."""


def is_own_path(name: str) -> bool:
    """Whether what is to be registered is a user's own: a YAML file, or a folder that is no name of the library."""
    return name.endswith((".yml", ".yaml")) or (Path(name).is_dir() and catalogue.resolve(name) is None)


def own_assets(paths: Iterable[Path], version: str = "") -> list[LibraryAsset]:
    """Users' own components and pipelines with all that they need of their own, in the order of publication.

    The environment that stands in a component's YAML gets a name: Azure ML would make it an anonymous one, of which a
    registry takes no second version [SDK issue #37464].

    Args:
        paths: YAML files, or folders that have one.
        version: of pipelines whose YAML has none, as that of a job cannot; without one that of their components.

    Raises:
        UnknownNameError: there is no such file.
        SpecError: a component or pipeline is not valid, or cannot be registered; with the problems of all.
    """
    found = _OwnAssets(version)
    for path in paths:
        found.add(_file_of(path))
    if found.problems:
        raise SpecError(list(dict.fromkeys(found.problems)))
    return list(found.assets.values())


def _file_of(path: Path) -> Path:
    files = [path / name for name in _FILES] if path.is_dir() else [path]
    file = next((one for one in files if one.is_file()), None)
    if file is None:
        neither = f"there is neither a component.yaml nor a pipeline.yml in {str(path)!r}"
        missing = neither if path.is_dir() else f"there is no file {str(path)!r}"
        raise UnknownNameError(f"{missing}.", "`allranks init SCRIPT` writes both.")
    return file


class _OwnAssets:
    """Collects assets, each once, after what it needs, and everything that is wrong with them."""

    def __init__(self, version: str) -> None:
        self.assets: dict[tuple[str, str], LibraryAsset] = {}
        self.problems: list[Problem] = []
        self._version = version

    def add(self, file: Path) -> LibraryAsset | None:
        """What a file holds, with what it needs; None where something is wrong with it."""
        try:
            spec = read_spec(file, resolve=catalogue.resolve, to_run=False)
        except SpecError as error:
            self.problems += only_errors(error.problems) or error.problems
            return None
        if problems := only_errors(check_document(spec)):
            self.problems += problems
            return None
        document = read_yaml(file)[0]
        if isinstance(spec, Pipeline) and document.get("type", "pipeline") == "pipeline":
            return self._add_pipeline(spec, document, file)
        if isinstance(spec, Component) and document.get("type", "command") == "command":
            return self._add_component(document, file)
        message = f"a {document.get('type')} cannot be registered by its path: a command component or a pipeline can."
        self._refuse(message, "type", file)
        return None

    def _refuse(self, message: str, where: str, file: Path, hint: str = "") -> None:
        self.problems.append(Problem(message, where, file, hint=hint))

    def _keep(self, asset: LibraryAsset) -> LibraryAsset:
        """Take an asset, unless another one has its name: pipelines are components too, and share their names."""
        known = self.assets.setdefault((asset.family, asset.name), asset)
        if known.path.resolve() != asset.path.resolve() and asset.kind != "environment":  # that is its component's
            message = f"{asset.name!r} is the name of {known.path} too, and one version of a name is one thing."
            self._refuse(message, "name", asset.path, "Write another `name:`.")
        return known

    # A component

    def _add_component(self, document: Mapping[str, Any], file: Path) -> LibraryAsset | None:
        component = read_component(file)
        version, written = str(document.get("version") or ""), document.get("environment")
        if not version:
            self._refuse("has no version.", "version", file, 'Write version: "1".')
            return None
        kept = {key: value for key, value in document.items() if key not in (*NOT_COMPARED, *WORDS, *INTERFACE)}
        marks = {"interface": mark_of(document, INTERFACE), "words": mark_of(document, WORDS)}
        marks["code"] = snapshot.content_hash(snapshot.snapshot_files(component))
        ours = catalogue.environment_of(written) if isinstance(written, str) else None
        needs: tuple[tuple[AssetKind, str], ...] = (("environment", f"{PREFIX}{ours}"),) if ours else ()
        if isinstance(written, dict):
            environment = self._keep(_own_environment(component.name, written, file))
            needs, kept = (("environment", environment.name),), {**kept, "environment": dict(environment.marks)}
        marks["command"] = mark_content(kept)
        made = LibraryAsset("component", component.name, file, needs, MappingProxyType(marks), document, (), version)
        return self._keep(made)

    # A pipeline

    def _add_pipeline(self, pipeline: Pipeline, document: Mapping[str, Any], file: Path) -> LibraryAsset | None:
        before = len(self.problems)
        children: list[LibraryAsset] = []
        steps = {name: self._step(name, step, file, children) for name, step in document["jobs"].items()}
        name = str(document.get("name") or _name_of(file))
        if fault := name_fault(name):
            self._refuse(fault, "name", file, "Write another `name:`.")
        own = {child.version for child in children if child.own_version}
        version = str(document.get("version") or self._version or (own.pop() if len(own) == 1 else ""))
        if not version:
            hint = f'{VERSION_OPTION} 1 gives it one; a pipeline component, which is no job, can have version: "1".'
            self._refuse("has no version.", "version", file, hint)
        if len(self.problems) > before:
            return None
        inputs, without = _declared_inputs(pipeline, document.get("inputs") or {})
        made: dict[str, Any] = {key: document[key] for key in _OF_A_COMPONENT if key in document}
        made |= {"inputs": inputs, "outputs": _declared_outputs(pipeline, document.get("outputs") or {})}
        marks = {"interface": mark_of(made, INTERFACE), "steps": mark_content(steps), "words": mark_of(made, WORDS)}
        made |= {"type": "pipeline", "name": name, "version": version, "jobs": steps}
        dropped = (*(key for key in _OF_THE_RUN if document.get(key)), *without)
        needs = tuple((child.kind, child.name) for child in children if not child.own_version)
        raised = "" if document.get("version") else VERSION_OPTION
        return self._keep(
            LibraryAsset("pipeline", name, file, needs, MappingProxyType(marks), made, dropped, version, raised)
        )

    def _step(self, name: str, step: Mapping[str, Any], file: Path, children: list[LibraryAsset]) -> dict[str, Any]:
        """A step with ``NAME:VERSION`` of its component, which is among the children then, or with an id as written."""
        key = component_key(step)
        written, where = step.get(key), f"jobs.{name}"
        self.problems += step_problems(step, where, file)
        if not isinstance(written, str):
            message = (
                f"a step of type {step.get('type', 'command')!r} that has no file of its own cannot be registered."
            )
            if key not in step and "command" not in step and "jobs" not in step:
                hint = "Take it out, or submit the pipeline as a job."
            else:
                hint = f"Put it into a YAML file with a name and a version, and write {key}: ./FILE.yaml here."
            self._refuse(message, where, file, hint)
            return dict(step)
        ours = catalogue.resolve(written)
        path = Path(written if is_address(written) else local_path(written, file.parent))
        if ours is None and path.absolute() in (
            *catalogue.component_files().values(),
            *catalogue.pipeline_files().values(),
        ):
            ours = path.absolute()
        if ours is not None:
            return {**step, key: self._library_child(ours, children)}
        if is_address(written):
            return dict(step)
        child = self.add(path)
        if child is None:
            return dict(step)
        children.append(child)
        return {**step, key: f"{child.name}:{child.version}"}

    def _library_child(self, file: Path, children: list[LibraryAsset]) -> str:
        """One of the library, which it registers itself."""
        is_component = file in catalogue.component_files().values()
        name = file.parent.name if is_component else file.stem
        kind: AssetKind = "component" if is_component else "pipeline"
        children.append(LibraryAsset(kind, name, file, (), MappingProxyType({}), MappingProxyType({})))
        return f"{name}:{library.VERSION}"


def _name_of(file: Path) -> str:
    """Of a pipeline without a name: its file's, or its folder's where the file is called as all are."""
    given = f"{file.absolute().parent.name}_pipeline" if file.stem in ("pipeline", "job") else file.stem
    return step_name(given)


def _declared_inputs(pipeline: Pipeline, written: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The inputs of a job as a component has them, literals with their value as default; and whose data is left out."""
    found, without = {}, []
    for name, declared in pipeline.inputs.items():
        said = written.get(name)
        said = said if isinstance(said, Mapping) else {"default": said}
        kept = {key: said[key] for key in _OF_AN_INPUT if said.get(key) is not None}
        if "value" in said:
            kept["default"] = said["value"]
        if declared.type not in LITERAL_TYPES:
            kept.pop("default", None)
            without += [f"the data of {name}"] if declared.default is not None else []
        found[name] = {"type": declared.type, **kept}
    return found, without


def _declared_outputs(pipeline: Pipeline, written: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, declared in pipeline.outputs.items():
        said = written.get(name)
        kept = {key: said[key] for key in ("description", "mode") if said.get(key)} if isinstance(said, Mapping) else {}
        found[name] = {"type": declared.type or "uri_folder", **kept}
    return found


def _own_environment(name: str, written: Mapping[str, Any], file: Path) -> LibraryAsset:
    """Return the environment that stands in a component, its conda file's content in place of its path.

    Its name is a hash of what is in it, so components with equal environments share one, which is built once.
    """
    document = {key: value for key, value in written.items() if key not in ("name", "version")}
    conda = document.get("conda_file")
    if isinstance(conda, str):
        document["conda_file"] = read_yaml(file.parent / conda)[0]
    marks = {"definition": mark_content(document)}
    build = document.get("build")
    if isinstance(build, dict):
        folder = (file.parent / str(build.get("path", "."))).resolve()
        document["build"] = {**build, "path": str(folder)}
        context = Component(name=name, source=Source(file, file.parent), code=folder)
        marks["files"] = snapshot.content_hash(snapshot.snapshot_files(context))
    named = {"name": f"environment-{mark_content(marks)[:12]}", "version": ONLY_VERSION, **document}
    return LibraryAsset("environment", named["name"], file, (), MappingProxyType(marks), named, (), ONLY_VERSION)
