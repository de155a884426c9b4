"""The folders of emulated nodes: each begins as a copy of the snapshot, and of some Azure ML keeps what is written."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from allranks.local import cache, snapshot
from allranks.local.downloads import no_files
from allranks.local.folders import StepFolder
from allranks.local.snapshot import SnapshotFile

KEPT_FOLDERS = ("outputs", "logs")
"""Folders that a command finds in its working folder: Azure ML keeps with the job what is written there."""

ARTIFACTS = "artifacts"


def lay_out_nodes(folder: StepFolder, files: Sequence[SnapshotFile], content_hash: str, nodes: int) -> None:
    """Give every node its own copy of a step's snapshot, and a temporary folder.

    Raises:
        OSError: the snapshot is no longer what was planned: whoever can write there could have anything executed.
    """
    kept = [replace(file, source=folder.snapshot / file.path, members=None) for file in files]
    if snapshot.content_hash(kept) != content_hash:
        raise OSError(f"the files in {folder.snapshot} are not those that were planned")
    for node in range(nodes):
        cache.remove_path(folder.work(node).parent)
        shutil.copytree(folder.snapshot, folder.work(node))
        for name in KEPT_FOLDERS:
            if not (folder.work(node) / name).exists():
                (folder.work(node) / name).mkdir()
        folder.tmp(node).mkdir()


def fill_artifacts(work: Path, place: Path) -> None:
    """Copy what Azure ML keeps of a working folder into an output ``artifacts`` that the command left empty.

    Under that name the outputs of a step give its default artifacts (``hello-pipeline-default-artifacts.yml`` of
    azureml-examples).
    """
    if place.is_dir() and not any(place.iterdir()):
        for kept in (work / name for name in KEPT_FOLDERS):
            if kept.is_dir():
                shutil.copytree(kept, place / kept.name, ignore=no_files, ignore_dangling_symlinks=True)
