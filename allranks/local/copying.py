"""``python copying.py MODE OUTPUT INPUT…``: what a data_transfer step runs; ports by name, places in the environment.

The files of a folder keep their paths, a file keeps its name. In ``merge_with_overwrite`` the input that is named later
wins; in ``fail_if_conflict`` nothing is copied when two inputs have a file of the same path.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

_MOST_NAMED = 5


def main(arguments: list[str]) -> int:
    """Copy; 1 and a message on a conflict."""
    mode, output, *names = arguments
    target = Path(os.environ[f"AZURE_ML_OUTPUT_{output}"])
    places = {name: Path(os.environ[key]) for name in names if (key := f"AZURE_ML_INPUT_{name}") in os.environ}
    if not target.is_dir():  # the output is a file, which its one input becomes
        (source,) = places.values()
        shutil.copyfile(source, target)
        print(f"copied {source} to {target}")
        return 0
    chosen: dict[str, tuple[str, Path]] = {}
    conflicts = []
    for name, place in places.items():
        for path, file in _files(place):
            if path in chosen:
                conflicts.append(f"{path} (of {chosen[path][0]} and {name})")
            chosen[path] = name, file
    if conflicts and mode == "fail_if_conflict":
        more = f" and {len(conflicts) - _MOST_NAMED} more" if len(conflicts) > _MOST_NAMED else ""
        print(f"error: {', '.join(conflicts[:_MOST_NAMED])}{more}: there twice, and data_copy_mode is {mode}")
        return 1
    folders = {parent.as_posix() for path in chosen for parent in Path(path).parents}
    if mixed := sorted(folders & chosen.keys()):
        print(f"error: {', '.join(mixed[:_MOST_NAMED])}: a file in one input and a folder in another")
        return 1
    for path, (_, file) in chosen.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target / path)
    print(f"copied {len(chosen)} files from {', '.join(places)} to {target}; {len(conflicts)} were there twice")
    return 0


def _files(place: Path) -> Iterator[tuple[str, Path]]:
    """The files at a place, each with its path in the output."""
    if not place.is_dir():
        yield place.name, place
        return
    for folder, folders, names in os.walk(place, followlinks=True):
        folders[:] = sorted(name for name in folders if not _leads_back(place, Path(folder), name))
        for name in sorted(names):
            file = Path(folder, name)
            yield file.relative_to(place).as_posix(), file


def _leads_back(place: Path, folder: Path, name: str) -> bool:
    """Whether a folder is a link to one that contains it, which would be copied for ever."""
    inside = folder.relative_to(place).parts
    above = (place.joinpath(*inside[:depth]).resolve() for depth in range(len(inside) + 1))
    return (folder / name).is_symlink() and (folder / name).resolve() in above


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
