"""Which inputs the scripts of a snapshot read from the variables that Azure ML sets for each: no need to pass these."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from allranks.spec.model import Component

_VARIABLE = re.compile(r"AZURE(?:ML_PARAMETER|_ML_INPUT)_(\w*)", re.IGNORECASE)
_IN_THE_IMAGE = re.compile(r"""(?:^|[\s'"=])/[^\s'"]+\.(?:py|sh)\b""")
_SCRIPTS = frozenset({".py", ".sh", ".bash", ".r", ".jl", ".ipynb"})
_MOST_FILES = 1000
_MOST_BYTES = 2**20


class ScriptInputs:
    """The inputs that the command or a script of the snapshot reads as ``AZUREML_PARAMETER_<name>`` and its like.

    A name that a script puts together, as in ``f"AZUREML_PARAMETER_{name}"``, may be any input's; and what a script of
    the environment's image reads cannot be known, such as that of ``python /azureml/run.py``.
    """

    def __init__(self, component: Component) -> None:
        found = (match[1].lower() for text in _texts(component) for match in _VARIABLE.finditer(text))
        self._names = frozenset([""] if _IN_THE_IMAGE.search(component.command) else found)

    def __contains__(self, name: str) -> bool:
        """Whether an input is read so; Azure ML upper-cases no name, and people compare them in any case."""
        return "" in self._names or name.lower().replace(".", "_") in self._names


def _texts(component: Component) -> Iterator[str]:
    yield component.command
    roots = [*([component.code] if component.code else []), *component.includes]
    for path in islice((path for root in roots for path in _scripts(root)), _MOST_FILES):
        try:
            if path.stat().st_size <= _MOST_BYTES:
                yield path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # a script that cannot be read is another's to report
            continue


def _scripts(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for here, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        yield from (Path(here, name) for name in sorted(files) if Path(name).suffix.lower() in _SCRIPTS)
