"""What is made from other files in a checkout of the library: types, pages, tables, extras, exported pipelines.

The types of ``allranks.components`` and the pages of the components come from the components' YAML, the tables in
``docs/sizes.md`` from ``sizes.yaml`` and ``builds.yaml`` in ``allranks/sizes``, extras in ``pyproject.toml`` from the
environments' requirements, the pipelines' YAML from their Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from allranks import catalogue, extras, library, pages, sizes, stubs
from allranks.errors import StorageError
from allranks.spec import read_component

_BEGIN, _END = "<!-- {}: made by `python -m allranks.renew` -->", "<!-- end of {} -->"


def made_files() -> Mapping[Path, str]:
    """Every file that is made from YAML and requirements, with the text that it should have.

    Raises:
        StorageError: this is an installation, which has no docs to renew.
    """
    root = library.root()
    if not (root / "docs").is_dir():
        raise StorageError(f"there is no {root / 'docs'}: only a checkout can be renewed.")
    components = [read_component(path) for path in catalogue.component_files().values()]
    folder = root / "docs" / "components"
    page = root / "docs" / "sizes.md"
    text = with_table(page.read_text(encoding="utf-8"), "sizes", pages.sizes_table(sizes.all_sizes().values()))
    project = root / "pyproject.toml"
    return {
        project: extras.with_extras(project.read_text(encoding="utf-8")),
        root / "allranks" / "azure" / "components.pyi": stubs.components_stub(components),
        folder / "README.md": pages.index_page(components),
        **{folder / f"{one.name}.md": pages.component_page(one) for one in components},
        page: with_table(text, "builds", pages.builds_table(sizes.build_table(), sizes.all_sizes().values())),
    }


def exported_pipelines() -> Mapping[Path, str]:
    """The YAML of the library's pipelines, from their Python.

    Raises:
        CannotRunHereError: the Azure ML SDK is not installed.
    """
    from allranks.azure.export import export_pipeline

    files: dict[Path, str] = {}
    for path in catalogue.pipeline_files().values():
        files |= export_pipeline(f"{path.with_suffix('.py')}:{path.stem}", path)
    return files


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
