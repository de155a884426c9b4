"""How long each cell of a notebook takes in a real kernel: ``python -m tests.docs.time_cells NOTEBOOK``."""

from __future__ import annotations

import sys
import tempfile
from datetime import datetime
from pathlib import Path

import nbformat

from tests.docs.test_notebooks import execute


def main() -> None:
    """Execute the notebook in an empty folder, and print the seconds and the first line of each of its cells."""
    notebook = nbformat.read(sys.argv[1], as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        execute(notebook, Path(folder))
    for cell in notebook.cells:
        if cell.cell_type == "code":
            times = cell.metadata.execution
            began, ended = (
                datetime.fromisoformat(times[name]) for name in ("iopub.execute_input", "shell.execute_reply")
            )
            print(f"{(ended - began).total_seconds():6.1f} s  {cell.source.splitlines()[0]}")


if __name__ == "__main__":
    main()
