"""``allranks renew``: write component.yaml from the settings and .amlignore from the imports.

For every tree with ``components/`` and ``shared/``, such as ``allranks copy`` makes: the inputs, outputs and arguments
of each ``component.yaml`` come from ``shared/settings``, the generated lines of its ``.amlignore`` from the imports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from allranks.errors import UsageError
from allranks.files import write_text
from allranks.renew.interface import read_interfaces, with_interface
from allranks.renew.snapshots import with_unreached
from allranks.spec import read_component

__all__ = ["renew_tree", "write_stale"]


def renew_tree(root: Path, *, only_check: bool = False) -> list[Path]:
    """Write the stale files of a tree, or only find them with ``only_check``; return their paths.

    Raises:
        UsageError: there are no components in it, or one has no place for what its settings say.
        SpecError: a component's YAML is wrong.
    """
    folders = sorted(file.parent for file in root.glob("components/*/component.yaml"))
    if not folders:
        raise UsageError(f"there is no component in {root / 'components'}.", "`allranks copy NAME` makes such a tree.")
    stale = write_stale(dict(_component_yamls(root, folders)), only_check=only_check)
    return stale + write_stale(dict(_ignore_files(folders)), only_check=only_check)  # reads each component.yaml


def write_stale(files: Mapping[Path, str], *, only_check: bool = False) -> list[Path]:
    """Write the files whose text differs on disk, or only find them with ``only_check``; return their paths."""
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text("utf-8") != text]
    if not only_check:
        for path in stale:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, files[path])
    return stale


def _component_yamls(root: Path, folders: list[Path]) -> Iterator[tuple[Path, str]]:
    interfaces = read_interfaces(root, folders)
    for file in (folder / "component.yaml" for folder in folders if folder.name in interfaces):
        try:
            yield file, with_interface(file.read_text("utf-8"), interfaces[file.parent.name])
        except ValueError as error:
            message = f"{file} cannot be written from its settings: {error}."
            raise UsageError(message, "The other components show how.") from None


def _ignore_files(folders: list[Path]) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        file = folder / ".amlignore"
        if file.is_file():
            yield file, with_unreached(file.read_text("utf-8"), read_component(folder / "component.yaml"))
