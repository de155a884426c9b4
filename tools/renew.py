"""Write every generated file of the checkout: ``python -m tools.renew``.

First component YAML and ``.amlignore``, as ``allranks renew`` writes them, then the files that are made from them. The
pages of components and the types of ``allranks.components`` come from component YAML, the tables in ``docs/sizes.md``
from ``allranks/sizes/*.yaml``, extras in ``pyproject.toml`` from the environments' requirements, ``docs/commands.md``
from the parsers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from allranks import catalogue, library, sizes
from allranks.azure.export import export_pipeline
from allranks.cli.main import VERBS, verb_parser
from allranks.renew import renew_tree, write_stale
from allranks.spec import read_component
from tools import pages, stubs
from tools.record_bodies import body_records
from tools.variables_page import variables_page

_EXTRAS = {
    "torch": "pytorch",
    "evaluate": "evaluate",
    "tensorflow": "tensorflow",
    "text": "transformers",
    "deepspeed": "deepspeed",
    "lightning": "lightning",
}
"""Extra to environment: whoever installs the extra can run the steps of the environment."""

_TABLE_MARKS = "<!-- {}: made by `make renew` -->", "<!-- end of {} -->"
_STYLE = "allranks/local/page/assets/style.css"
_STYLED = (
    "components/compare_models/compare_models.py",
    "shared/cluster/page.py",
    "shared/report/base.html",
)
"""The pages that components write: their snapshots have no file of the tool's, so the style stands in each."""

_STYLE_MARKS = "/* Made by `make renew`. */\n", "/* End of what is made. */\n"
_EXTRAS_MARKS = (
    "# Made by `make renew` from environments/*/requirements.txt, so that neither drifts.\n",
    "# End of what is made.\n",
)

_MADE_FOLDERS = {"docs/components": "*.md", "tests/azure/recorded": "*.json"}
"""Folders in which every file of this pattern is made."""


def renew_checkout(*, only_check: bool = False, pipelines: bool = False) -> list[Path]:
    """Write the stale files of the checkout and remove those without a source; return both.

    Args:
        only_check: write and remove nothing.
        pipelines: also write what needs the Azure SDK or a run, which takes about a minute: the YAML of
            ``pipelines/*.py``, the records of what is sent, ``docs/variables.md``.
    """
    stale = renew_tree(library.root(), only_check=only_check)
    stages: list[Callable[[], Mapping[Path, str]]] = [made_files]
    stages += [exported_pipelines, body_records, variables_page] if pipelines else []
    made: dict[Path, str] = {}
    for stage in stages:  # each reads what the previous one has written
        files = stage()
        stale += write_stale(files, only_check=only_check)
        made |= files
    gone = left_over(made)
    if not only_check:
        for path in gone:
            path.unlink()
    return stale + gone


def made_files() -> Mapping[Path, str]:
    """Return the files that are made from YAML, requirements and parsers, with their texts."""
    root = library.root()
    components = [read_component(path) for path in catalogue.component_files().values()]
    folder = root / "docs" / "components"
    page = root / "docs" / "sizes.md"
    text = with_table(page.read_text(encoding="utf-8"), "sizes", pages.sizes_table(sizes.all_sizes().values()))
    project = root / "pyproject.toml"
    return {
        **_styled_pages(root),
        project: _with_extras(project.read_text(encoding="utf-8")),
        stubs.STUB_FILE: stubs.components_stub(components),
        root / "docs" / "commands.md": pages.command_line_page({name: verb_parser(name) for name in VERBS}),
        folder / "README.md": pages.index_page(components),
        **{folder / f"{one.name}.md": pages.component_page(one) for one in components},
        page: with_table(text, "builds", pages.builds_table(sizes.build_table(), sizes.all_sizes().values())),
    }


def exported_pipelines() -> Mapping[Path, str]:
    """Return the YAML of the library's pipelines; raises CannotRunHereError without the Azure SDK."""
    files: dict[Path, str] = {}
    for path in catalogue.pipeline_files().values():
        files |= export_pipeline(f"{path.with_suffix('.py')}:{path.stem}", path)
    return files


def left_over(files: Mapping[Path, str]) -> list[Path]:
    """Return pages and records of assets that no longer exist, from the folders that these files lie in."""
    folders = {path.parent for path in files}
    patterns = {library.root() / name: pattern for name, pattern in _MADE_FOLDERS.items()}
    present = (path for folder, pattern in patterns.items() if folder in folders for path in folder.glob(pattern))
    return sorted(path for path in present if path not in files)


def with_table(text: str, name: str, table: str) -> str:
    """Replace the table between the two marks of this name."""
    begin, end = (mark.format(name) for mark in _TABLE_MARKS)
    return _with_block(text, begin, f"\n\n{table}\n\n", end)


def _styled_pages(root: Path) -> Mapping[Path, str]:
    """The pages of components with the style that all pages have."""
    begin, end = _STYLE_MARKS
    style = (root / _STYLE).read_text(encoding="utf-8")
    return {path: _with_block(path.read_text("utf-8"), begin, style, end) for path in map(root.joinpath, _STYLED)}


def _with_extras(project: str) -> str:
    """The text of pyproject.toml with these extras as the environments have them."""
    begin, end = _EXTRAS_MARKS
    return _with_block(project, begin, "".join(_extra(extra, name) for extra, name in _EXTRAS.items()), end)


def _extra(extra: str, environment: str) -> str:
    file = catalogue.environment_files()[environment].parent / "requirements.txt"
    lines = file.read_text(encoding="utf-8").splitlines()
    found = [line.partition("#") for line in lines if line and not line.startswith("#")]
    body = "".join(f'    "{text.strip()}",{f" # {comment.strip()}" if comment else ""}\n' for text, _, comment in found)
    return f"{extra} = [ # environments/{environment}\n{body}]\n"


def _with_block(text: str, begin: str, inside: str, end: str) -> str:
    before, _, rest = text.partition(begin)
    return before + begin + inside + end + rest.partition(end)[2]


def main() -> int:
    """Print the stale files; with ``--check`` return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tools.renew", description="Write every generated file.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is stale")
    parser.add_argument(
        "--pipelines",
        action="store_true",
        help="also what needs the Azure SDK or a run: the YAML of pipelines, records, docs/variables.md",
    )
    args = parser.parse_args()
    stale = renew_checkout(only_check=args.check, pipelines=args.pipelines)
    for path in stale:
        print(path.relative_to(library.root()))
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
