"""``allranks renew``: write again what is made from other files of a tree.

In every tree with ``components/`` and ``shared/``, such as ``allranks copy`` makes: inputs, outputs and arguments of
each ``component.yaml`` from the settings in ``shared/settings``, and what its ``.amlignore`` leaves out from the
imports. In a checkout of the library also what ``library_files`` lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from allranks import library
from allranks.errors import UsageError
from allranks.files import write_text
from allranks.renew.interface import read_interfaces, with_interface
from allranks.renew.library_files import exported_pipelines, left_over, made_files, with_table
from allranks.renew.snapshots import with_unreached
from allranks.spec import read_component

__all__ = ["left_over", "made_files", "renew_tree", "with_table"]


def renew_tree(root: Path, *, only_check: bool = False, pipelines: bool = False) -> list[Path]:
    """Write what is stale in a tree, or with ``only_check`` find it; returns these files, those to remove included.

    In a checkout ``pipelines`` exports ``pipelines/*.py`` too, which takes some seconds for each.

    Raises:
        UsageError: there are no components in it, or one has no place for what its settings say.
        SpecError: a component's YAML is wrong.
    """
    folders = sorted(file.parent for file in root.glob("components/*/component.yaml"))
    if not folders:
        raise UsageError(f"there is no component in {root / 'components'}.", "`allranks copy NAME` makes such a tree.")
    stages: list[Callable[[], Mapping[Path, str]]] = [
        lambda: dict(_component_yamls(root, folders)),
        lambda: dict(_ignore_files(folders)),
    ]
    if whole := root.resolve() == library.root() and (root / "docs").is_dir():
        stages += [made_files, *([exported_pipelines] if pipelines else [])]
    stale: list[Path] = []
    for files in (stage() for stage in stages):  # each reads what the one before has written
        found = [path for path, text in files.items() if not path.is_file() or path.read_text("utf-8") != text]
        if not only_check:
            for path in found:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, files[path])
        stale += found
    gone = left_over(made_files()) if whole else []
    if not only_check:
        for path in gone:
            path.unlink()
    return stale + gone


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
