"""The folders of an attempt: a copy of the snapshot for each node, places for outputs, logs that are kept."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from allranks.local import cache, snapshot
from allranks.local.downloads import no_files
from allranks.local.folders import StepFolder
from allranks.local.snapshot import SnapshotFile
from allranks.spec import Output
from allranks.spec.model import LITERAL_TYPES

KEPT_FOLDERS = ("outputs", "logs")
"""Folders that a command finds in its working folder: Azure ML keeps with the job what is written there."""

ARTIFACTS = "artifacts"


def lay_out_nodes(
    folder: StepFolder,
    files: Sequence[SnapshotFile],
    content_hash: str,
    nodes: int,
    before: StepFolder | None = None,
) -> None:
    """Give every node its own copy of a step's snapshot.

    Beside the snapshot's files are those that a script has written on the node in the step ``before``.

    Raises:
        OSError: the snapshot was changed since it was taken, so it could execute anything.
    """
    if snapshot.copied_hash(files, folder.snapshot) != content_hash:
        raise OSError(f"the files in {folder.snapshot} were changed since the run began")
    for node in range(nodes):
        cache.remove_path(folder.work(node).parent)
        shutil.copytree(folder.snapshot, folder.work(node))
        if before is not None:
            _take_over_files(before.work(node), before.snapshot, folder.work(node))
        for name in KEPT_FOLDERS:
            if not (folder.work(node) / name).exists():
                (folder.work(node) / name).mkdir()


def _take_over_files(before: Path, snapshot: Path, work: Path) -> None:
    """Copy what a script has written in an earlier run; a file of its code that has changed since stays as it is."""
    for name in cache.new_files(before, snapshot):
        place, original = work / name, snapshot / name
        if not place.exists() or (original.is_file() and filecmp.cmp(original, place, shallow=False)):
            place.parent.mkdir(parents=True, exist_ok=True)
            cache.remove_path(place)
            shutil.copy2(before / name, place, follow_symlinks=False)


def make_places(folder: Path, outputs: Mapping[str, Output]) -> dict[str, str]:
    """Where each output is written; folders are made, files (and with them literals) are the script's to make."""
    places = {}
    for name, output in outputs.items():
        place = folder / name
        if output.type not in {"uri_file", *LITERAL_TYPES}:
            place.mkdir(exist_ok=True)
        places[name] = str(place)
    return places


def keep_logs(folder: StepFolder, attempt: int) -> None:
    """Put the logs of a failed attempt aside, since the next one writes under the same names."""
    kept = folder.attempt_logs(attempt)
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(folder.logs, kept)


def fill_artifacts(work: Path, place: Path) -> None:
    """Copy what Azure ML keeps of a working folder into an output ``artifacts`` that the command left empty.

    Under that name the outputs of a step give its default artifacts (``hello-pipeline-default-artifacts.yml`` of
    azureml-examples).
    """
    if place.is_dir() and not any(place.iterdir()):
        for kept in (work / name for name in KEPT_FOLDERS):
            if kept.is_dir():
                shutil.copytree(kept, place / kept.name, ignore=no_files, ignore_dangling_symlinks=True)
