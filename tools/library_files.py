"""What is made from other files in a checkout of the library: types, pages, tables, extras, exported pipelines.

The types of ``allranks.components`` and the pages of the components come from the components' YAML, the tables in
``docs/sizes.md`` from ``sizes.yaml`` and ``builds.yaml`` in ``allranks/sizes``, extras in ``pyproject.toml`` from the
environments' requirements, ``docs/commands.md`` from the parsers, the pipelines' YAML from their Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from allranks import catalogue, library, sizes
from allranks.cli.main import VERBS, verb_parser
from allranks.spec import read_component
from tools import pages, stubs
from tools.command_page import command_line_page

_EXTRAS = {
    "torch": "pytorch",
    "evaluate": "evaluate",
    "tensorflow": "tensorflow",
    "text": "transformers",
    "deepspeed": "deepspeed",
    "lightning": "lightning",
}
"""Extra to environment: whoever installs the extra can run the steps of the environment."""

_TABLE_MARKS = "<!-- {}: made by `python -m allranks.renew` -->", "<!-- end of {} -->"
_STYLE = "allranks/local/page/assets/style.css"
_STYLED = (
    "components/compare_models/compare_models.py",
    "shared/cluster/page.py",
    "shared/report/base.html",
)
"""The pages that components write: their snapshots have no file of the tool's, so the style stands in each."""

_STYLE_MARKS = "/* Made by `python -m allranks.renew`. */\n", "/* End of what is made. */\n"
_EXTRAS_MARKS = (
    "# Made by `python -m allranks.renew` from environments/*/requirements.txt, so that neither drifts.\n",
    "# End of what is made.\n",
)

_MADE_FOLDERS = {"docs/components": "*.md", "tests/azure/recorded": "*.json"}
"""Folders in which every file of this pattern is made."""


def made_files() -> Mapping[Path, str]:
    """Every file that is made from YAML and requirements, with its text."""
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
        root / "docs" / "commands.md": command_line_page({name: verb_parser(name) for name in VERBS}),
        folder / "README.md": pages.index_page(components),
        **{folder / f"{one.name}.md": pages.component_page(one) for one in components},
        page: with_table(text, "builds", pages.builds_table(sizes.build_table(), sizes.all_sizes().values())),
    }


def exported_pipelines() -> Mapping[Path, str]:
    """The YAML of the library's pipelines, from their Python; raises CannotRunHereError without the SDK."""
    from allranks.azure.export import export_pipeline

    files: dict[Path, str] = {}
    for path in catalogue.pipeline_files().values():
        files |= export_pipeline(f"{path.with_suffix('.py')}:{path.stem}", path)
    return files


def with_table(text: str, name: str, table: str) -> str:
    """The page with another table between the two marks of this name."""
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


def left_over(files: Mapping[Path, str]) -> list[Path]:
    """Return pages and records of assets that no longer exist, from the folders that these files lie in."""
    folders = {path.parent for path in files}
    patterns = {library.root() / name: pattern for name, pattern in _MADE_FOLDERS.items()}
    present = (path for folder, pattern in patterns.items() if folder in folders for path in folder.glob(pattern))
    return sorted(path for path in present if path not in files)
