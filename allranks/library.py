"""Where the library's folders are: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from allranks.errors import StorageError

VERSION = "0.1.0"
"""The one version of the package, of all components, pipelines and environments (a test compares them)."""

FOLDERS = ("components", "pipelines", "shared", "environments")
"""What the library consists of; they lie side by side, so that ``../../shared`` resolves everywhere."""


@cache
def root() -> Path:
    """The folder that holds components/, pipelines/, shared/ and environments/; raises StorageError without them."""
    package = Path(__file__).resolve().parent
    for place in (package / "_library", package.parent):  # the wheel's first: site-packages may hold any other "shared"
        if (place / "components").is_dir() and (place / "shared").is_dir():
            return place
    raise StorageError(
        f"the library's folders ({', '.join(FOLDERS)}) are neither in {package / '_library'} nor beside {package}.",
        "Install allranks again, or use it from a whole checkout.",
    )


def install_command(extra: str) -> str:
    """Return the command that installs an extra of allranks, which no package index has yet."""
    checkout = Path(__file__).resolve().parents[1]
    found = (checkout / "pyproject.toml").is_file()
    return f'pip install -e "{checkout if found else "CHECKOUT"}[{extra}]"'
