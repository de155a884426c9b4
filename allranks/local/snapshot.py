"""The snapshot of a component: the same files, in the same places and with the same sha256, as the SDK would upload.

Source of the rules: azure-ai-ml 1.35 (``_utils/_asset_utils.py``, ``entities/_component/_additional_includes.py`` and
``code.py``); tests/azure/test_snapshot_equality.py holds this module against it. With ``additional_includes`` the SDK
copies the code and then each include into one folder, where the ignore files of every subfolder count, and then walks
the result with the ignore file at its root alone. Without includes only the one at the root of the code counts.
A runs folder is never taken, and a virtual environment neither; ``azure/sdk.py`` teaches the SDK the same.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from allranks.errors import StorageError
from allranks.local.ignore import IGNORE_FILES, IgnoreFile, is_left_out, read_ignore_file, rules_of, rules_of_file
from allranks.spec.model import Component

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One file of a snapshot.

    Attributes:
        path: where it lies in the snapshot, relative, with forward slashes.
        source: the file that it is copied from, or the folder that becomes an archive.
        members: what goes into the archive, for an include ``folder.zip`` where only ``folder`` exists.
    """

    path: str
    source: Path
    members: tuple[Path, ...] | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return self.source.stat().st_size if self.members is None else len(self._archive())

    def chunks(self) -> Iterator[bytes]:
        """The content, a MiB at a time."""
        if self.members is not None:
            yield self._archive()
            return
        with self.source.open("rb", buffering=0) as stream:
            while chunk := stream.read(_MIB):
                yield chunk

    def copy_to(self, path: Path) -> None:
        """Write the content to ``path``, with the mode bits of a file that is copied."""
        if self.members is None:
            shutil.copy(self.source, path)
        else:
            path.write_bytes(self._archive())

    def _archive(self) -> bytes:
        """The zip file of a folder as the SDK writes it: stored, the folder itself first, with the files' own times."""
        buffer = BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for path in filter(Path.exists, (self.source, *(self.members or ()))):
                archive.write(path, os.path.relpath(path, self.source.parent))
        return buffer.getvalue()


def snapshot_files(component: Component) -> list[SnapshotFile]:
    """The files that each node of a step with this component sees, in the order in which the SDK hashes them.

    Raises:
        StorageError: the code or an include does not exist, or a link leads nowhere or back to its own folder.
        UsageError: a line of an ignore file is not a pattern.
    """
    code = None if component.code is None else component.code.resolve()
    try:
        found = list(_merged(code, component) if component.includes else _plain(code))
    except OSError as error:
        raise StorageError(f"Cannot list the snapshot of {component.name}: {error}.") from error
    for file in found:
        if not os.fsencode(file.path).isascii() and file.path != os.fsencode(file.path).decode(errors="replace"):
            raise StorageError(f"The name of the file {file.path!r} in the snapshot of {component.name} is not UTF-8.")
    return sorted(found, key=lambda file: (file.path.lower(), file.path))


def content_hash(snapshot: Sequence[SnapshotFile]) -> str:
    """The sha256 that Azure ML stores for the code asset (hash version 202208): count, names and sizes, contents.

    Raises:
        StorageError: a file cannot be read.
    """
    digest = hashlib.sha256(str(len(snapshot)).encode())
    try:
        for file in snapshot:
            digest.update(f"#{file.path}#{file.size}".encode())
        for file in snapshot:
            for chunk in file.chunks():
                digest.update(chunk)
    except OSError as error:
        raise StorageError(f"Cannot read a file of the snapshot: {error}.") from error
    return digest.hexdigest()


def copy_snapshot(snapshot: Sequence[SnapshotFile], destination: Path) -> list[SnapshotFile]:
    """Copy the files to ``destination`` (made if absent), with their mode bits; links become what they point to.

    Returns the files that were copied: one that was deleted since it was listed is left out.

    Raises:
        StorageError: a file cannot be read or written.
    """
    copied = []
    destination.mkdir(parents=True, exist_ok=True)
    for file in snapshot:
        place = destination / file.path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            file.copy_to(place)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not file.source.exists():
                continue
            problem = f"Cannot copy {file.source} to the snapshot {destination}: {error.strerror or error}."
            raise StorageError(problem, "A file that no step needs can be left out: name it in .amlignore.") from error
        copied.append(file)
    return copied


def copied_hash(snapshot: Sequence[SnapshotFile], folder: Path) -> str:
    """Return the ``content_hash`` of a copy of these files. Raises StorageError if one of them cannot be read."""
    return content_hash([SnapshotFile(file.path, folder / file.path) for file in snapshot])


def first_files(code: Path) -> Iterator[SnapshotFile]:
    """The files of a folder's snapshot, in no order: whoever has seen enough may stop. Raises OSError, UsageError."""
    return _plain(code.resolve())


def _plain(code: Path | None) -> Iterator[SnapshotFile]:
    """The files of a component without includes."""
    if code is None:
        return
    if code.is_dir():
        yield from _walk(str(code), "", read_ignore_file(str(code)), ())
    else:
        yield from _single(code, IgnoreFile(str(code.parent), ()))


def _walk(folder: str, prefix: str, ignore: IgnoreFile, above: tuple[str, ...]) -> Iterator[SnapshotFile]:
    """All files under ``folder``; the SDK matches a linked folder's files by where they really are."""
    real = os.path.realpath(folder)
    _refuse_loop(real, folder, above)
    for entry in _entries(folder):
        path = prefix + entry.name
        if entry.is_dir():
            if not is_left_out(entry.path):
                yield from _walk(entry.path, path + "/", ignore, (*above, real))
        elif not ignore.excludes(f"{real}/{entry.name}"):
            yield SnapshotFile(path, _regular_file(entry))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """The entries of a folder; none if it was deleted since it was listed."""
    try:
        return list(os.scandir(folder))
    except FileNotFoundError:
        return []


def _merged(code: Path | None, component: Component) -> Iterator[SnapshotFile]:
    """The files of a component with includes: a later include overwrites an earlier file of the same path."""
    root = _root_ignore_file(code, component)
    parts = [] if code is None else [_tree(str(code), "", (root,), ()) if code.is_dir() else _single(code, root)]
    includes = map(Path.resolve, component.includes)
    parts += [_include(include, root.rebased(str(include.parent))) for include in includes]
    merged = {file.path: file for part in parts for file in part}
    at_root = next((merged[name] for name in IGNORE_FILES if name in merged), None)
    final = IgnoreFile("", rules_of(()) if at_root is None else rules_of_file(str(at_root.source)))
    return (file for file in merged.values() if not final.excludes_relative(file.path))


def _root_ignore_file(code: Path | None, component: Component) -> IgnoreFile:
    """What holds for the code and, seen from the folder of each, for the includes."""
    if code is not None and code.is_file():
        return IgnoreFile(str(code.parent), rules_of(()))
    return read_ignore_file(str(code or component.source.base))


def _include(source: Path, root: IgnoreFile) -> Iterator[SnapshotFile]:
    """The files that one include brings to the root of the snapshot."""
    if source.is_dir():
        return _tree(str(source), source.name + "/", (root, read_ignore_file(str(source))), ())
    if source.suffix == ".zip" and not source.exists() and source.with_suffix("").is_dir():
        return iter([_zipped(source, root)])
    return _single(source, root)


def _single(source: Path, ignore: IgnoreFile) -> Iterator[SnapshotFile]:
    if not source.is_file():
        raise FileNotFoundError(f"there is no file or folder {source}")
    if not ignore.excludes(str(source)):
        yield SnapshotFile(source.name, source)


def _tree(folder: str, prefix: str, ignores: tuple[IgnoreFile, ...], above: tuple[str, ...]) -> Iterator[SnapshotFile]:
    """All files under ``folder``; each subfolder's own ignore file adds to those above it."""
    if any(ignore.excludes(folder) for ignore in ignores):
        return
    real = os.path.realpath(folder)
    _refuse_loop(real, folder, above)
    for entry in _entries(folder):
        path = prefix + entry.name
        if entry.is_dir():
            if is_left_out(entry.path):
                continue
            inner = (*ignores, read_ignore_file(entry.path))
            yield from _tree(entry.path, path + "/", inner, (*above, real))
        elif not any(ignore.excludes(entry.path) for ignore in ignores):
            yield SnapshotFile(path, _regular_file(entry))


def _zipped(source: Path, root: IgnoreFile) -> SnapshotFile:
    """An include ``folder.zip`` that does not exist: the folder beside it, to be archived."""
    folder = source.with_suffix("")
    inside = _walk(str(folder), "", read_ignore_file(str(folder)), ())
    members = sorted(file.source for file in inside if not root.excludes(str(file.source)))
    return SnapshotFile(source.name, folder, tuple(members))


def _regular_file(entry: os.DirEntry[str]) -> Path:
    if not entry.is_file():
        raise FileNotFoundError(f"{entry.path} is neither a file nor a folder, or a link that leads nowhere")
    return Path(entry.path).resolve() if entry.is_symlink() else Path(entry.path)


def _refuse_loop(real: str, folder: str, above: tuple[str, ...]) -> None:
    if real in above:
        raise FileNotFoundError(f"{folder} is a link to a folder that contains it")
