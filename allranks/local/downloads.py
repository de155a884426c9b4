"""The files of a step's inputs; of those of ``mode: download`` it gets a copy of its own, which it may write to."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from allranks.local.fingerprint import tree_fingerprint, walk_linked
from allranks.spec import Component, Data, Input, Step
from allranks.spec.expressions import single_reference

COPIED_BYTES = 2**30
"""An input up to this size is copied; larger ones would fill the disks on which people try pipelines."""

_DOWNLOAD = "download"
_Files: TypeAlias = Mapping[Path, list[list[str | int]]]


def downloaded_inputs(step: Step, component: Component, of_pipeline: Mapping[str, Input]) -> frozenset[str]:
    """Name the data inputs of a step that are downloaded.

    What the step says comes first, then the input of the pipeline that it is bound to, then the component.
    """
    return frozenset(
        name
        for name, declared in component.inputs.items()
        if declared.is_data and _mode(step.inputs.get(name), declared, of_pipeline) == _DOWNLOAD
    )


def _mode(given: object, declared: Input, of_pipeline: Mapping[str, Input]) -> str | None:
    path = given.path if isinstance(given, Data) else given
    reference = single_reference(path)
    bound = of_pipeline.get(reference.name) if reference and reference.scope == "parent.inputs" else None
    inherited = None if bound is None else bound.mode
    if bound is not None and isinstance(bound.default, Data):
        inherited = bound.default.mode or inherited
    return (given.mode if isinstance(given, Data) else None) or inherited or declared.mode


def copy_inputs(
    data: Mapping[str, Path], names: Collection[str], files: Mapping[Path, list[list[str | int]]], folder: Path
) -> dict[str, Path]:
    """Copy those of the named inputs that are small enough into a folder, by name; where each copy is.

    ``files`` says what each path has, as `tree_fingerprint` does. Links become the files that they lead to.

    Raises:
        OSError: something cannot be copied.
    """
    copies = {}
    for name in sorted(names & data.keys()):
        source, place = data[name], folder / name
        if sum(int(size) for _, size, _ in files[source]) > COPIED_BYTES:
            continue
        if source.is_dir():
            _copy_folder(source, place)
        else:
            place.mkdir(parents=True, exist_ok=True)
            place /= source.name
            shutil.copyfile(source, place)
        copies[name] = place
    return copies


def _copy_folder(source: Path, place: Path) -> None:
    """Copy files and no rights: what is downloaded can be written to."""
    for folder, _, names in walk_linked(source):
        target = place / Path(folder).relative_to(source)
        target.mkdir(parents=True, exist_ok=True)
        for file in (Path(folder, name) for name in names):
            if file.exists():  # storage has no link that leads nowhere
                shutil.copyfile(file, target / file.name)


def unchanged_inputs(paths: Iterable[Path], identified: _Files, earlier: _Files) -> dict[Path, list[list[str | int]]]:
    """The files of the inputs: those by which the step was ``identified``, and that ``earlier`` attempts have found.

    Raises:
        OSError: they are others: what comes of them would be kept as what comes of those.
    """
    found = {path: tree_fingerprint(path) for path in paths}
    known = {**identified, **earlier}
    if changed := [str(path) for path, files in found.items() if known.get(path, files) != files]:
        since = "an earlier attempt began" if earlier else "this run looked at it"
        raise OSError(f"its input {', '.join(changed)} has changed since {since}")
    return found


def no_files(folder: str, names: list[str]) -> set[str]:
    """What no storage can hold, of the names in a folder: pipes and sockets."""
    return {one for one in names if (path := Path(folder, one)).exists() and not (path.is_file() or path.is_dir())}
