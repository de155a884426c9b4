"""Lines of requirements files: files that they name are read in, paths made absolute.

The format: https://pip.pypa.io/en/stable/reference/requirements-file-format/.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from allranks.errors import Problem, SpecError
from allranks.spec.budget import current_budget

_OPTION = re.compile(
    r"(?P<option>-[recf]|--(?:requirement|editable|constraint|find-links))(?:\s+|=|(?<=^-.))(?P<value>\S.*)"
)
_TEMPLATE = re.compile(r"==\s*\{\{.*?\}\}")  # the sources of Azure's environments: whatever version is the newest


def read_pip_lines(lines: Iterable[str], folder: Path, depth: int = 0) -> tuple[str, ...]:
    """Lines as pip takes them, with those of the files that ``-r`` names in place of it.

    Paths start from ``folder``.

    Raises:
        SpecError: a file that is named is not there.
    """
    found: list[str] = []
    for line in _joined(lines):
        match = _OPTION.fullmatch(line)
        if match is None:
            found.append(_absolute_path(line, folder) if line.startswith((".", "/")) else line)
        elif match["option"] in ("-r", "--requirement"):
            found += _read_file(_local(match["value"], folder), depth)
        elif match["option"] in ("-e", "--editable"):
            found.append(f"-e {_absolute_path(match['value'], folder)}")
        else:
            found.append(f"{match['option']} {_absolute_path(match['value'], folder)}")
    return tuple(found)


def line_name(line: str) -> str:
    """What a line installs, in PyPI's spelling; of an address the last name in it that says something."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    text = line.removeprefix("-e ").strip()
    try:
        return canonicalize_name(Requirement(re.sub(r"\s--\w.*", "", text)).name)
    except InvalidRequirement:
        pass
    for pattern in (r"[#&]egg=([\w.-]+)", r"[#&]subdirectory=(?:.*/)?([\w.-]+)", r"([\w.-]+?)(?:\.git)?(?:[@#].*)?/?$"):
        if found := re.search(pattern, text):
            return canonicalize_name(found[1])
    return text


def is_named(package: str, line: str) -> bool:
    """Whether a user who says ``package`` means this line: its name, or, of an address, any part of it."""
    if line.startswith("-") and not line.startswith("-e"):
        return False
    from packaging.utils import canonicalize_name

    at_an_address = "://" in line or line.startswith(("-e", "/", "."))
    return canonicalize_name(package) == line_name(line) or (at_an_address and package.lower() in line.lower())


def _read_file(file: Path, depth: int) -> tuple[str, ...]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SpecError([Problem(f"cannot be read: {error.strerror or error}.", file=file)]) from None
    if depth == (budget := current_budget()).list_files:
        message = f"names itself, or more than {budget.list_files} files name one another."
        raise SpecError([Problem(message, file=file, hint=budget.how_to_raise("list_files"))])
    return read_pip_lines(text.splitlines(), file.parent, depth + 1)


def _joined(lines: Iterable[str]) -> list[str]:
    """The lines without comments and empty ones, those that end in a backslash joined to the next."""
    text = "\n".join(re.sub(r"(^|\s)#.*", "", line).rstrip() for line in lines).replace("\\\n", " ")
    return [_TEMPLATE.sub("", line.strip()) for line in text.splitlines() if line.strip()]


def _absolute_path(text: str, folder: Path) -> str:
    return text if "://" in text or text.startswith("git+") else str(_local(text, folder))


def _local(text: str, folder: Path) -> Path:
    return (folder / text.strip("\"'")).resolve()
