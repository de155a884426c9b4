"""``python -m allranks.renew``: write again, in a checkout, what is made from other files of it.

The types of ``allranks.components`` and the pages of the components come from the components' YAML, the tables in
``docs/sizes.md`` from ``sizes.yaml`` and ``builds.yaml`` in ``allranks/sizes``, extras in ``pyproject.toml`` from the
environments' requirements. With ``--check`` nothing is written, and the exit code is 1 when something is stale. With
``--locks`` the exact versions are resolved as well, which asks the package index.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from allranks import catalogue, extras, library, locks, pages, sizes, stubs
from allranks.errors import CannotRunHereError, StorageError
from allranks.files import write_text
from allranks.spec import read_component

_BEGIN, _END = "<!-- {}: made by `python -m allranks.renew` -->", "<!-- end of {} -->"


def made_files() -> Mapping[Path, str]:
    """Every file that is made from others, with the text that it should have.

    Raises:
        StorageError: this is an installation, which has no docs to renew.
    """
    root = library.root()
    if not (root / "docs").is_dir():
        raise StorageError(f"there is no {root / 'docs'}: only a checkout can be renewed.")
    components = [read_component(path) for path in catalogue.components().values()]
    folder = root / "docs" / "components"
    page = root / "docs" / "sizes.md"
    text = with_table(page.read_text(encoding="utf-8"), "sizes", pages.sizes_table(sizes.sizes().values()))
    project = root / "pyproject.toml"
    return {
        project: extras.with_extras(project.read_text(encoding="utf-8")),
        root / "allranks" / "azure" / "components.pyi": stubs.stub(components),
        folder / "README.md": pages.index_page(components),
        **{folder / f"{one.name}.md": pages.component_page(one) for one in components},
        page: with_table(text, "builds", pages.builds_table(sizes.build_table(), sizes.sizes().values())),
    }


def with_table(text: str, name: str, table: str) -> str:
    """The page with another table between the two marks of this name."""
    begin, end = _BEGIN.format(name), _END.format(name)
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def left_over(files: Mapping[Path, str]) -> list[Path]:
    """Pages of components that there are no more."""
    folder = library.root() / "docs" / "components"
    return [path for path in sorted(folder.glob("*.md")) if path not in files]


def main() -> int:
    """Write what is stale, or with ``--check`` name it."""
    parser = argparse.ArgumentParser(prog="python -m allranks.renew", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when something is stale")
    parser.add_argument("--locks", action="store_true", help="resolve constraints.txt and every lock, keeping versions")
    parser.add_argument("--upgrade", action="store_true", help="with --locks: take the newest versions in the ranges")
    args = parser.parse_args()
    only_check = args.check
    if (args.upgrade and not args.locks) or (only_check and args.locks):
        parser.error("--upgrade goes with --locks, and --check without it.")
    files = made_files()
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in [*stale, *left_over(files)]:
        print(path.relative_to(library.root()))
        if only_check:
            continue
        if path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, files[path])
        else:
            path.unlink()
    if args.locks:
        try:
            changed = locks.renew_locks(upgrade=args.upgrade)
        except CannotRunHereError as error:
            sys.exit(f"error: {error.message} {error.hint}")
        for path in changed:
            print(path.relative_to(library.root()))
    return 1 if only_check and (stale or left_over(files)) else 0


if __name__ == "__main__":
    sys.exit(main())
