"""The docs site: Sphinx over the pages of this folder, with warnings as errors; `make docs` writes it."""

from pathlib import Path

from sphinx.application import Sphinx

from allranks.library import VERSION

project = "allranks"
author = "The allranks authors"
version = release = VERSION
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"allranks {VERSION}"
html_favicon = "pictures/favicon.svg"  # without one each page asks for a file that is not there
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_copy_source = False
html_show_copyright = False
myst_heading_anchors = 3  # links to headings, as GitHub makes them
autodoc_typehints = "description"
autodoc_member_order = "bysource"
nitpicky = False  # of the SDK's and torch's types there are no pages here

_BESIDE = {
    "../CONTRIBUTING.md": "contributing.md",
    "../SECURITY.md": "security.md",
    "../README.md": "https://github.com/allranks/allranks/blob/main/README.md",
}
"""What the pages name of the checkout, where they are read as files, and what it is on the site."""


def setup(app: Sphinx) -> None:
    """Lead links out of this folder to their pages of the site."""
    app.connect("source-read", _lead_to_pages)


def _lead_to_pages(_app: Sphinx, _page: str, source: list[str]) -> None:
    for file, page in _BESIDE.items():
        source[0] = source[0].replace(f"]({file}", f"]({page}")
