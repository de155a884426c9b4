"""Whether the files that an environment written in place names are there, as the SDK looks for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from allranks.spec.section import Section, is_address


def check_environment_files(environment: Section, build: Section) -> None:
    """Note a ``conda_file`` or a ``build.path`` that is not there; addresses are not looked at."""
    if environment.source.file is None:
        return
    build.known({"path", "dockerfile_path"}, "a build context")
    conda = environment.data.get("conda_file")
    if isinstance(conda, (int, float, list)):
        environment.wrong("conda_file", "is neither a file nor a mapping of what conda installs.")
    elif isinstance(conda, str) and conda and not _is_there(environment, conda, Path.is_file):
        environment.wrong("conda_file", f"there is no file '{environment.local(conda)}'.")
    path = build.data.get("path")
    if isinstance(path, str) and not _is_there(build, path, Path.exists):
        build.wrong("path", f"there is no file or folder '{build.local(path)}'.")


def _is_there(section: Section, text: str, exists: Callable[[Path], bool]) -> bool:
    return is_address(text) or exists(Path(section.local(text)))
